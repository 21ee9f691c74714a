//! Nodes that turn values into what a dashboard shows: `Summary` messages, for a [`FileWriter`](crate::FileWriter).
//!
//! Names, tags and the collection are TensorFlow's: a summary's tag is its node's name, scopes included, and
//! [`Graph::merge_all_summaries`] brings together all that were made before it.

use crate::{Graph, Output};
use framework::Scope;
use prost::Message;
use tensor::{DType, Result, Tensor, invalid};

impl Graph {
    /// A curve: one number under a tag.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let loss = g.placeholder::<f32>(Shape::scalar());
    /// g.name_scope("train", || g.scalar_summary("loss", &loss));
    /// g.histogram_summary("losses", &loss);
    /// let summaries = g.merge_all_summaries().expect("two were made");
    ///
    /// let folder = tempfile::tempdir()?;
    /// let writer = FileWriter::create(folder.path())?;
    /// writer.add_graph(&g)?;
    /// let session = Session::new(&g)?;
    /// for step in 1i64..=3 {
    ///     writer.add_summary(&session.run_with(&summaries, feed! { loss => 1.0 / step as f32 })?, step)?;
    /// }
    /// writer.close()?;
    /// # Ok::<(), ferroflow::Error>(())
    /// ```
    #[track_caller]
    pub fn scalar_summary(&self, tag: &str, value: &Output) -> Output {
        self.summary(tag, value, |s, full, value| {
            let tags = tag_of(s, full, "tags")?;
            s.node("ScalarSummary").name(format!("{full}/")).inputs(&[tags, value]).output()
        })
    }

    /// How the values of a tensor are distributed.
    #[track_caller]
    pub fn histogram_summary(&self, tag: &str, values: &Output) -> Output {
        self.summary(tag, values, |s, full, values| {
            let tag = tag_of(s, full, "tag")?;
            s.node("HistogramSummary").name(format!("{full}/")).inputs(&[tag, values]).output()
        })
    }

    /// The first images of a batch, of shape (batch, height, width, 1, 3 or 4).
    #[track_caller]
    pub fn image_summary(&self, tag: &str, images: &Output, max_images: usize) -> Output {
        let max_images = i64::try_from(max_images).unwrap_or(i64::MAX);
        self.summary(tag, images, |s, full, images| {
            let tag = tag_of(s, full, "tag")?;
            let node = s.node("ImageSummary").name(format!("{full}/")).inputs(&[tag, images]);
            node.attr("max_images", max_images).output()
        })
    }

    /// Text, which is shown as Markdown.
    #[track_caller]
    pub fn text_summary(&self, tag: &str, text: &Output) -> Output {
        let dtype = text.dtype();
        self.summary(tag, text, |s, full, text| {
            if dtype != DType::String {
                return Err(invalid!("the text summary {full} wants text, found {dtype}"));
            }
            let plugin = proto::summary_metadata::PluginData { plugin_name: "text".into(), ..Default::default() };
            let metadata = proto::SummaryMetadata { plugin_data: Some(plugin), ..Default::default() };
            tensor_summary(s, full, text, &metadata)
        })
    }

    /// A tensor as it is.
    #[track_caller]
    pub fn tensor_summary(&self, tag: &str, value: &Output) -> Output {
        self.summary(tag, value, |s, full, value| tensor_summary(s, full, value, &Default::default()))
    }

    /// Several summaries in one.
    #[track_caller]
    pub fn merge_summaries(&self, summaries: &[&Output]) -> Output {
        let own: Option<Vec<_>> = summaries.iter().map(|summary| self.own_one(summary)).collect();
        match own {
            Some(own) => self.output([], |s, []| s.with_name("Merge", || s.node("MergeSummary").inputs(&own).output())),
            None => Output::void(self),
        }
    }

    /// All summaries made so far in one, or nothing if there are none.
    #[track_caller]
    pub fn merge_all_summaries(&self) -> Option<Output> {
        let all = self.summaries();
        (!all.is_empty()).then(|| self.merge_summaries(&all.iter().collect::<Vec<_>>()))
    }

    /// The summaries made so far.
    pub fn summaries(&self) -> Vec<Output> {
        self.collections().lock().summaries.clone()
    }

    /// A summary under the full name that its tag leads to; it joins the graph's collection.
    #[track_caller]
    fn summary(
        &self,
        tag: &str,
        value: &Output,
        build: impl FnOnce(&Scope, &str, framework::Output) -> Result<framework::Output>,
    ) -> Output {
        let summary = self.output([value], |s, [value]| {
            let name = clean(tag);
            if name.is_empty() {
                return Err(invalid!("a summary needs a tag, found '{tag}'"));
            }
            let full = s.unique_name(&name);
            build(s, &full, value)
        });
        if summary.id().is_some() {
            self.collections().lock().summaries.push(summary.clone());
        }
        summary
    }
}

/// A tag as the name of a node: what names may not hold becomes an underscore.
fn clean(tag: &str) -> String {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    let cleaned: String = tag.chars().map(|c| if is_good(c) { c } else { '_' }).collect();
    cleaned.trim_start_matches('/').to_string()
}

fn tag_of(s: &Scope, full: &str, input: &str) -> Result<framework::Output> {
    text_constant(s, full, input, full.as_bytes().to_vec())
}

fn text_constant(s: &Scope, full: &str, input: &str, text: Vec<u8>) -> Result<framework::Output> {
    let value = Tensor::string(text);
    s.with_absolute_name(full, || {
        s.node("Const").name(input).attr("dtype", DType::String).attr("value", value).output()
    })
}

fn tensor_summary(
    s: &Scope,
    full: &str,
    value: framework::Output,
    metadata: &proto::SummaryMetadata,
) -> Result<framework::Output> {
    let tag = tag_of(s, full, "tag")?;
    let metadata = text_constant(s, full, "serialized_summary_metadata", metadata.encode_to_vec())?;
    s.node("TensorSummaryV2").name(format!("{full}/")).inputs(&[tag, value, metadata]).output()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Session;
    use crate::feed;

    /// The nodes that TensorFlow 2.21's `tf.compat.v1.summary` makes for the same calls, in its order.
    #[test]
    fn nodes_are_named_as_tensorflow_names_them() {
        let g = Graph::new();
        let x = g.placeholder::<f32>([None]);
        let images = g.placeholder::<f32>([None, Some(2), Some(2), Some(1)]);
        let text = g.constant("hi");
        let first = g.scalar_summary("loss", &x);
        let second = g.scalar_summary("loss", &x);
        g.name_scope("layer", || {
            g.histogram_summary("weights hi", &x);
            g.image_summary("/pics", &images, 2);
            g.text_summary("note", &text);
        });
        g.tensor_summary("tens", &x);
        g.merge_summaries(&[&first, &second]);
        g.merge_all_summaries().unwrap();
        let found = g.to_string();
        let found: Vec<&str> = found.lines().skip(3).map(|line| line.split(" = ").next().unwrap()).collect();
        let wanted = "loss/tags loss loss_1/tags loss_1 layer/weights_hi/tag layer/weights_hi layer/pics/tag layer/pics \
             layer/note/tag layer/note/serialized_summary_metadata layer/note tens/tag \
             tens/serialized_summary_metadata tens Merge/MergeSummary Merge_1/MergeSummary";
        assert_eq!(found, wanted.split_whitespace().collect::<Vec<_>>());
        let merged = g.to_graph_def().unwrap().node.pop().unwrap();
        assert_eq!(merged.input, ["loss", "loss_1", "layer/weights_hi", "layer/pics", "layer/note", "tens"]);
    }

    /// Bytes as TensorFlow 2.21 makes them of the same values.
    #[test]
    fn messages_are_tensorflows() {
        let g = Graph::new();
        let x = g.placeholder::<f32>([None]);
        let hi = g.constant("hi");
        let session = Session::new(&g).unwrap();
        let mean = x.mean();
        let cases: [(Output, &[u8]); 3] = [
            (g.scalar_summary("loss", &mean), b"\n\x0b\n\x04loss\x15\x00\x00\xc0?"),
            (
                g.name_scope("layer", || g.text_summary("note", &hi)),
                b"\n \n\nlayer/noteB\x08\x08\x07\x12\x00B\x02hiJ\x08\n\x06\n\x04text",
            ),
            (
                g.tensor_summary("tens", &x),
                b"\n\x1c\n\x04tensB\x12\x08\x01\x12\x04\x12\x02\x08\x02\"\x08\x00\x00\x80?\x00\x00\x00@J\x00",
            ),
        ];
        for (summary, wanted) in cases {
            let found = session.run_with(&summary, feed! { x => [1.0f32, 2.0] }).unwrap();
            let decode = |bytes: &[u8]| proto::Summary::decode(bytes).unwrap();
            assert_eq!(decode(found.string_item().unwrap()), decode(wanted), "{summary:?}");
        }
    }

    #[test]
    fn mistakes_are_kept_and_not_collected() {
        for (tag, wanted) in [("/", "a summary needs a tag, found '/'"), ("note", "note wants text, found float")] {
            let g = Graph::new();
            let x = g.placeholder::<f32>([None]);
            g.text_summary(tag, &x);
            assert!(g.merge_all_summaries().is_none());
            let error = g.check().unwrap_err();
            assert!(error.message.contains(wanted), "{error}");
        }
    }
}
