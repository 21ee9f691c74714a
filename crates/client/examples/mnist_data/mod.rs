//! What the MNIST examples are asked for: `--data_dir DIR --steps N`.

use ferroflow::data::mnist::{self, DataSets, MnistOptions};
use ferroflow::prelude::*;
use std::path::PathBuf;

/// How an example is asked to train.
pub struct Flags {
    /// Where the MNIST files are; the digits that are compiled in if not said.
    pub data_dir: Option<PathBuf>,
    /// How many steps to train.
    pub steps: usize,
}

impl Flags {
    /// What the command line says.
    pub fn parse(steps: usize) -> Result<Flags> {
        let mut flags = Flags { data_dir: None, steps };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag.to_string(), Some(value.to_string())),
                None => (word, words.next()),
            };
            match (flag.as_str(), value) {
                ("--data_dir", Some(value)) => flags.data_dir = Some(value.into()),
                ("--steps", Some(value)) => {
                    let steps = value.parse();
                    flags.steps = steps.map_err(|_| tensor::invalid!("--steps wants a number, found '{value}'"))?;
                }
                _ => return Err(tensor::invalid!("usage: [--data_dir DIR] [--steps N], found '{flag}'")),
            }
        }
        Ok(flags)
    }

    /// The digits, labels one-hot.
    pub fn digits(&self) -> Result<DataSets> {
        let options = MnistOptions { one_hot: true, validation_size: 2000, seed: Some(1), ..Default::default() };
        match &self.data_dir {
            Some(dir) => mnist::read_data_sets(dir, &options),
            None => mnist::embedded(&options),
        }
    }
}
