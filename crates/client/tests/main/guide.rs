//! The guide is whole: every page is in its table of contents and has its Rust compiled, and links lead somewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The pages there are, without the table of contents.
fn pages() -> BTreeSet<String> {
    let names = std::fs::read_dir(source()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".md").map(str::to_string)).filter(|name| name != "SUMMARY").collect()
}

/// Where the links of a page lead.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

#[test]
fn every_page_is_listed_and_compiled() {
    let summary = read(&source().join("SUMMARY.md"));
    let listed: BTreeSet<String> =
        links(&summary).iter().map(|link| link.trim_end_matches(".md").to_string()).collect();
    assert_eq!(listed, pages());
    let compiled = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide.rs"));
    let compiled = compiled.rsplit("pages! {").next().unwrap().trim_end().trim_end_matches('}');
    assert_eq!(compiled.split_whitespace().map(str::to_string).collect::<BTreeSet<_>>(), pages());
}

#[test]
fn links_lead_to_pages_and_their_headings() {
    for page in pages() {
        let text = read(&source().join(format!("{page}.md")));
        for link in links(&text).into_iter().filter(|link| link.contains(".md") || link.starts_with('#')) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { text.clone() } else { read(&source().join(file)) };
            let headings = target.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"));
            assert!(heading.is_empty() || anchors.any(|anchor| anchor == heading), "{page}: {link}");
        }
    }
}
