//! `ReadFile`, `WriteFile` and `MatchingFiles`: files as a whole, and their names.

use bytes::Bytes;
use framework::kernel::function;
use framework::{KernelContext, Op, shapes};
use regex::Regex;
use std::io::Read;
use std::path::{Path, PathBuf};
use storage::{Compression, Files, LocalFiles, open_bytes};
use tensor::{PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ReadFile")
            .input("filename: string")
            .output("contents: string")
            .shape(|c| {
                c.require_scalar(0)?;
                shapes::scalar(c)
            })
            .kernel(function(read)),
        Op::new("WriteFile")
            .input("filename: string")
            .input("contents: string")
            .stateful()
            .shape(shapes::no_outputs)
            .kernel(function(write)),
        Op::new("MatchingFiles")
            .input("pattern: string")
            .output("filenames: string")
            .shape(|_| Ok(vec![PartialShape::of_rank(1)]))
            .kernel(function(matching)),
    ]
}

fn path(ctx: &KernelContext<'_>) -> Result<PathBuf> {
    if !ctx.input(0).shape().is_scalar() {
        return Err(invalid!("Input filename tensor must be scalar, but had shape: {}", ctx.input(0).shape()));
    }
    text(ctx.input(0).string_item()?).map(PathBuf::from)
}

fn text(bytes: &Bytes) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| invalid!("the name of a file is not UTF-8"))
}

fn read(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut contents = Vec::new();
    open_bytes(&LocalFiles, &path(ctx)?, Compression::None)?.read_to_end(&mut contents)?;
    ctx.set_output(0, Tensor::string(contents))
}

fn write(ctx: &mut KernelContext<'_>) -> Result<()> {
    let path = path(ctx)?;
    if !ctx.input(1).shape().is_scalar() {
        return Err(invalid!("Contents tensor must be scalar, but had shape: {}", ctx.input(1).shape()));
    }
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        LocalFiles.create_dir_all(folder)?;
    }
    let mut file = LocalFiles.create(&path)?;
    file.write_all(ctx.input(1).string_item()?)
}

fn matching(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut found = Vec::new();
    for pattern in ctx.input(0).as_strings()? {
        found.extend(matches(text(pattern)?)?);
    }
    found.sort();
    let names = found.into_iter().map(Bytes::from).collect::<Vec<_>>();
    ctx.set_output(0, Tensor::from_strings([names.len()], names)?)
}

/// The files whose names match a pattern in which `*`, `?` and `[…]` stand for anything but a slash.
fn matches(pattern: &str) -> Result<Vec<String>> {
    let mut found = vec![if pattern.starts_with('/') { "/".to_string() } else { String::new() }];
    let parts: Vec<&str> = pattern.split('/').filter(|p| !p.is_empty()).collect();
    for part in parts {
        let mut next = Vec::new();
        for folder in &found {
            let name = |part: &str| {
                format!("{folder}{}{part}", if folder.is_empty() || folder.ends_with('/') { "" } else { "/" })
            };
            if !part.contains(['*', '?', '[']) {
                if LocalFiles.exists(Path::new(&name(part)))? {
                    next.push(name(part));
                }
                continue;
            }
            let regex = translated(part)?;
            let inside = Path::new(if folder.is_empty() { "." } else { folder });
            // What is not a folder, or cannot be read, has nothing that matches.
            let names = LocalFiles.list(inside).unwrap_or_default();
            next.extend(names.iter().filter(|n| regex.is_match(n)).map(|n| name(n)));
        }
        found = next;
    }
    Ok(found)
}

fn translated(part: &str) -> Result<Regex> {
    let mut text = String::from("^");
    let mut chars = part.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' => text.push_str(".*"),
            '?' => text.push('.'),
            '[' => {
                text.push('[');
                text.extend(chars.by_ref().take_while(|c| *c != ']').map(|c| if c == '!' { '^' } else { c }));
                text.push(']');
            }
            c => text.push_str(&regex::escape(&c.to_string())),
        }
    }
    text.push('$');
    Regex::new(&text).map_err(|e| invalid!("'{part}' is not a pattern of file names: {e}"))
}
