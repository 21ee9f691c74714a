//! The pages of the guide, so that the tests compile and run every Rust block in them.

/// Lists the pages.
macro_rules! pages {
    ($($page:ident)*) => {$(
        #[doc = include_str!(concat!("../../../docs/src/", stringify!($page), ".md"))]
        mod $page {}
    )*};
}
pages! {
    index zh cluster server devices replication async_and_sync monitored_sessions fault_tolerance data launching
    from_tensorflow_1 benchmarks benchmarks_apart benchmarks_zen4 benchmarks_intel
}
