//! Graphs in files, as TensorFlow writes them (`graph.pb`), and as text.

use crate::Graph;
use prost::Message;
use std::fmt;
use std::path::Path;
use tensor::{Error, Result, invalid};

impl Graph {
    /// The graph in a file of TensorFlow's: a serialized `GraphDef`.
    pub fn read(path: impl AsRef<Path>) -> Result<Graph> {
        let path = path.as_ref();
        let here = |e: Error| Error { message: format!("{}: {}", path.display(), e.message), ..e };
        let bytes = std::fs::read(path).map_err(|e| here(e.into()))?;
        let message = proto::GraphDef::decode(bytes.as_slice())
            .map_err(|e| here(invalid!("this is not a serialized GraphDef: {e}")))?;
        Graph::import(&message).map_err(here)
    }

    /// Writes the graph to a file, as TensorFlow reads it.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = self.to_graph_def()?.encode_to_vec();
        std::fs::write(path, bytes).map_err(|e| {
            let e = Error::from(e);
            Error { message: format!("{}: {}", path.display(), e.message), ..e }
        })
    }
}

impl fmt::Display for Graph {
    /// One line per node.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scope().with_graph(|g| g.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_survives_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.pb");
        let g = Graph::new();
        let x = g.placeholder::<f32>([None, Some(2)]);
        let _y = g.device("/job:ps", || x.relu());
        g.write(&path).unwrap();
        let text = Graph::read(&path).unwrap().to_string();
        assert_eq!(text, g.to_string());
        assert_eq!(text.lines().last(), Some("Relu = Relu(Placeholder) @ /job:ps"));
        std::fs::write(&path, b"not a graph").unwrap();
        let error = Graph::read(&path).unwrap_err();
        assert!(error.message.contains("graph.pb: this is not a serialized GraphDef"), "{error}");
    }
}
