//! `OptionsDataset`, `ModelDataset`, `OptimizeDatasetV2`, `PrefetchDataset`: the same elements. They say how TensorFlow
//! should run a dataset, not what is in it.

use super::{input, output_shared, scalar_shape};
use framework::Op;
use framework::kernel::function;

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let same = |op: Op| {
        op.output("handle: variant").shape(scalar_shape).kernel(function(|ctx| {
            let dataset = input(ctx, 0)?;
            output_shared(ctx, dataset)
        }))
    };
    let of_one = |name: &str| Op::new(name).input("input_dataset: variant");
    let types = |op: Op| op.attr("output_types: list(type) >= 1").attr("output_shapes: list(shape) >= 1");
    vec![
        types(same(of_one("PrefetchDataset").input("buffer_size: int64")))
            .attr("slack_period: int = 0")
            .attr("legacy_autotune: bool = true")
            .attr("buffer_size_min: int = 0")
            .attr("metadata: string = ''"),
        types(same(of_one("OptionsDataset")).attr("serialized_options: string")).attr("metadata: string = ''"),
        types(
            same(of_one("ModelDataset"))
                .attr("algorithm: int = 0")
                .attr("cpu_budget: int = 0")
                .attr("ram_budget: int = 0"),
        ),
        types(same(of_one("OptimizeDataset").input("optimizations: string")))
            .attr("optimization_configs: list(string) = []"),
        types(same(
            of_one("OptimizeDatasetV2")
                .input("optimizations_enabled: string")
                .input("optimizations_disabled: string")
                .input("optimizations_default: string"),
        ))
        .attr("optimization_configs: list(string) = []"),
    ]
}
