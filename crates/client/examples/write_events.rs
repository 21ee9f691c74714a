//! Trains a line and writes everything a dashboard can show of it: `write_events DIRECTORY`.
//!
//! Afterwards: `tensorboard --logdir DIRECTORY`.

use ferroflow::prelude::*;
use std::path::PathBuf;

fn main() -> Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: write_events DIRECTORY");
        std::process::exit(2);
    };
    let g = Graph::new();
    let x = g.placeholder::<f32>([None]);
    let w = g.variable("w", 0.0f32);
    let errors = g.name_scope("model", || (&x * &w - &x * 3.0).square());
    let loss = errors.mean();
    let train = GradientDescent::new(0.05).minimize(&loss);
    g.scalar_summary("loss", &loss);
    g.histogram_summary("errors", &errors);
    let picture = errors.reshape(&[1, 2, 2, 1]);
    g.image_summary("picture", &picture, 3);
    let note = g.constant("a *line* through 0");
    g.text_summary("note", &note);
    let summaries = g.merge_all_summaries().expect("four were made");
    let init = g.initialize_all();

    let writer = FileWriter::create(folder)?;
    writer.add_graph(&g)?;
    let session = Session::new(&g)?;
    session.run(&init)?;
    writer.add_session_log(&SessionEvent::Start, 0)?;
    for step in 0..20 {
        let options = RunOptions { trace: step == 10, ..Default::default() };
        let feeds = feed! { x => [0.0f32, 1.0, 2.0, 3.0] };
        let ((summary, ()), metadata) = session.run_options((&summaries, &train), feeds, &options)?;
        writer.add_summary(&summary, step)?;
        if options.trace {
            writer.add_run_metadata(&metadata, &format!("step{step}"), step)?;
        }
    }
    writer.close()
}
