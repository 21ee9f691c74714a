//! `Print` and `PrintV2`: lines for whoever watches the server.

use super::assert::summary;
use framework::gradient::GradValue;
use framework::kernel::kernel;
use framework::{Kernel, KernelBuild, KernelContext, Op, shapes};
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Print")
            .input("input: T")
            .input("data: U")
            .output("output: T")
            .attr("T: type")
            .attr("U: list(type) >= 0")
            .attr("message: string = ''")
            .attr("first_n: int = -1")
            .attr("summarize: int = 3")
            .stateful()
            .shape(shapes::unchanged)
            .gradient(|_, g| {
                let rest = std::iter::repeat_n(None, g.inputs.len() - 1);
                Ok(std::iter::once(Some(GradValue::Dense(g.dy[0]))).chain(rest).collect())
            })
            .kernel(kernel(Print::new)),
        Op::new("PrintV2")
            .input("input: string")
            .attr("output_stream: string = 'stderr'")
            .attr("end: string = '\n'")
            .stateful()
            .shape(|c| {
                c.require_scalar(0)?;
                shapes::no_outputs(c)
            })
            .kernel(kernel(PrintLine::new)),
    ]
}

/// Writes to the error stream; that nobody reads it is no reason to fail.
fn write(text: &[u8]) {
    let _ = std::io::stderr().lock().write_all(text);
}

struct Print {
    message: String,
    /// How often it still prints; negative for ever.
    left: AtomicI64,
    summarize: i64,
}

impl Print {
    fn new(b: &KernelBuild<'_>) -> Result<Print> {
        Ok(Print {
            message: b.attr("message")?,
            left: AtomicI64::new(b.attr("first_n")?),
            summarize: b.attr("summarize")?,
        })
    }

    fn is_due(&self) -> bool {
        let next = |left: i64| if left > 0 { Some(left - 1) } else { None };
        self.left.load(Ordering::Relaxed) < 0
            || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

impl Kernel for Print {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        if self.is_due() {
            let limit = usize::try_from(self.summarize).unwrap_or(usize::MAX);
            let mut line = self.message.clone();
            (1..ctx.num_inputs()).for_each(|i| line.push_str(&format!("[{}]", summary(ctx.input(i), limit))));
            line.push('\n');
            write(line.as_bytes());
        }
        let value = ctx.take(0);
        ctx.set_output(0, value)
    }
}

struct PrintLine {
    end: Vec<u8>,
}

impl PrintLine {
    fn new(b: &KernelBuild<'_>) -> Result<PrintLine> {
        // Every stream is this process's error stream: the others are the client's, which is elsewhere.
        Ok(PrintLine { end: b.attr::<bytes::Bytes>("end")?.to_vec() })
    }
}

impl Kernel for PrintLine {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        if !ctx.input(0).shape().is_scalar() {
            return Err(invalid!("Input is expected to be scalar, but got {}", ctx.input(0).shape()));
        }
        write(&[ctx.input(0).string_item()?, self.end.as_slice()].concat());
        Ok(())
    }
}
