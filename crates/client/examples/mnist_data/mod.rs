//! What the MNIST examples are asked for: `--data_dir DIR --steps N`.

use ferroflow::data::mnist::{self, DataSets, MnistOptions};
use ferroflow::prelude::*;
use std::path::PathBuf;

/// How an example is asked to train.
#[derive(clap::Parser)]
pub struct Flags {
    /// Where the MNIST files are; the digits that are compiled in if not said.
    #[arg(long = "data_dir")]
    pub data_dir: Option<PathBuf>,
    /// How many steps to train.
    #[arg(long)]
    pub steps: Option<usize>,
}

impl Flags {
    /// The digits, labels one-hot.
    pub fn digits(&self) -> Result<DataSets> {
        let options = MnistOptions { one_hot: true, validation_size: 2000, seed: Some(1), ..Default::default() };
        match &self.data_dir {
            Some(dir) => mnist::read_data_sets(dir, &options),
            None => mnist::embedded(&options),
        }
    }
}
