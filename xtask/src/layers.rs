//! Compares the crates' manifests with the table in ARCHITECTURE.md of who may depend on whom.
//!
//! The table is the rule: it is read, not repeated here. Dev-dependencies are free, tests may use anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{Result, read};

/// From a crate's folder to the folders of the crates it uses, or may use.
type Uses = BTreeMap<String, BTreeSet<String>>;

const HEADING: &str = "| crate | may use |";
const ANY: &str = "everything above";

/// Fails with every manifest that the table does not allow.
pub fn check(root: &Path) -> Result<()> {
    let allowed = parse_table(&read(root.join("ARCHITECTURE.md"))?)?;
    let found = read_manifests(&root.join("crates"))?;
    let wrong = disagreements(&allowed, &found);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

fn disagreements(allowed: &Uses, found: &Uses) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, uses) in found {
        let Some(may_use) = allowed.get(name) else {
            wrong.push(format!("crates/{name} has no row in the table of ARCHITECTURE.md"));
            continue;
        };
        wrong.extend(uses.difference(may_use).map(|other| format!("{name} must not depend on {other}")));
    }
    let gone = allowed.keys().filter(|name| !found.contains_key(*name));
    wrong.extend(gone.map(|name| format!("the table of ARCHITECTURE.md has {name}, crates/ has not")));
    wrong
}

/// Reads the rows under [`HEADING`]: names between backquotes in the first two columns.
fn parse_table(document: &str) -> Result<Uses> {
    let mut rows = document.lines().skip_while(|line| !line.starts_with(HEADING)).skip(2).peekable();
    if rows.peek().is_none() {
        return Err(format!("ARCHITECTURE.md has no table that begins with {HEADING}").into());
    }
    let mut uses = Uses::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let columns: Vec<&str> = row.split('|').collect();
        let [_, crates, may_use, ..] = columns[..] else {
            return Err(format!("a row of the table in ARCHITECTURE.md has too few columns: {row}").into());
        };
        let mut allowed: BTreeSet<String> = quoted(may_use);
        if may_use.contains(ANY) {
            allowed.extend(uses.keys().cloned());
        }
        uses.extend(quoted(crates).into_iter().map(|name| (name, allowed.clone())));
    }
    Ok(uses)
}

fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A crate is known by its folder, which is not always its package's name: the face carries the project's.
fn read_manifests(crates: &Path) -> Result<Uses> {
    let mut manifests = BTreeMap::new();
    for entry in std::fs::read_dir(crates)? {
        let folder = entry?.path();
        let name = folder.file_name().ok_or("a crate without a name")?.to_string_lossy().into_owned();
        manifests.insert(name, toml::from_str::<toml::Table>(&read(folder.join("Cargo.toml"))?)?);
    }
    let mut folder_of = BTreeMap::new();
    for (folder, manifest) in &manifests {
        let package = manifest.get("package").and_then(|package| package.get("name")?.as_str());
        folder_of.insert(plain(package.ok_or_else(|| format!("crates/{folder} has no package name"))?), folder);
    }
    let uses_of = |manifest: &toml::Table| -> BTreeSet<String> {
        let tables = ["dependencies", "build-dependencies"].into_iter().filter_map(|key| manifest.get(key)?.as_table());
        let packages =
            tables.flatten().map(|(key, value)| value.get("package").and_then(|p| p.as_str()).unwrap_or(key));
        packages.filter_map(|package| folder_of.get(plain(package))).map(|folder| folder.to_string()).collect()
    };
    Ok(manifests.iter().map(|(name, manifest)| (name.clone(), uses_of(manifest))).collect())
}

/// The workspace manifest gives our packages their plain names, so that both spellings mean the same crate.
fn plain(package: &str) -> &str {
    package.strip_prefix("ferroflow-").unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "
| crate | may use | must not know about |
|---|---|---|
| `low`, `deep` | nothing of ours | everything |
| `middle` | `low` | |
| `top` | everything above | |

`text` after the table";

    #[track_caller]
    fn check(found: &[(&str, &[&str])], expected: &[&str]) {
        let found = found.iter().map(|(name, uses)| (name.to_string(), uses.iter().map(|u| u.to_string()).collect()));
        assert_eq!(disagreements(&parse_table(TABLE).unwrap(), &found.collect()), expected);
    }

    #[test]
    fn the_manifests_agree_with_the_table() {
        super::check(crate::root()).unwrap();
    }

    #[test]
    fn manifests_that_keep_to_the_table_pass() {
        check(&[("low", &[]), ("deep", &[]), ("middle", &["low"]), ("top", &["low", "middle", "deep"])], &[]);
    }

    #[test]
    fn an_arrow_upward_is_named() {
        check(
            &[("low", &["middle"]), ("deep", &[]), ("middle", &["low", "deep"]), ("top", &[])],
            &["low must not depend on middle", "middle must not depend on deep"],
        );
    }

    #[test]
    fn table_and_folders_list_the_same_crates() {
        check(
            &[("low", &[]), ("deep", &[]), ("middle", &[]), ("new", &[])],
            &[
                "crates/new has no row in the table of ARCHITECTURE.md",
                "the table of ARCHITECTURE.md has top, crates/ has not",
            ],
        );
    }

    #[test]
    fn a_document_without_the_table_is_an_error() {
        assert!(parse_table("# Architecture").is_err());
    }
}
