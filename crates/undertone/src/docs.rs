//! The documents of the project, as they stand beside the code: guide, networking, embedding,
//! security, benchmarks and the specification.
//!
//! Links between them are reference links. `links.md`, which stands before each page, defines them
//! for these modules; the definitions at the end of a page are for readers of the files.
#![allow(clippy::doc_markdown)]

macro_rules! pages {
    ($($name:ident: $file:literal;)*) => {
        $(
            #[doc = include_str!("links.md")]
            #[doc = include_str!($file)]
            pub mod $name {}
        )*
    };
}

pages! {
    guide: "../docs/guide.md";
    networking: "../docs/networking.md";
    python: "../docs/python.md";
    security: "../docs/security.md";
    benchmarks: "../docs/benchmarks.md";
    decisions: "../docs/decisions.md";
    lwe_review: "../docs/lwe-review.md";
    security_policy: "../pages/SECURITY.md";
    architecture: "../pages/ARCHITECTURE.md";
    contributing: "../pages/CONTRIBUTING.md";
    vectors: "../pages/vectors.md";
}

#[cfg(feature = "net")]
pages! {
    embedding: "../docs/embedding.md";
}

#[doc = include_str!("links.md")]
#[doc = include_str!("../docs/spec/README.md")]
pub mod spec {
    pages! {
        conventions: "../docs/spec/conventions.md";
        jobs: "../docs/spec/jobs.md";
        network: "../docs/spec/network.md";
        setup: "../docs/spec/setup.md";
        codes: "../docs/spec/codes.md";
        distances: "../docs/spec/distances.md";
        psm: "../docs/spec/psm.md";
        shade: "../docs/spec/shade.md";
        phe: "../docs/spec/phe.md";
        lwe: "../docs/spec/lwe.md";
        paillier: "../docs/spec/paillier.md";
        transfers: "../docs/spec/transfers.md";
        punctured: "../docs/spec/punctured.md";
        garble: "../docs/spec/garble.md";
        sums: "../docs/spec/sums.md";
        rounds: "../docs/spec/rounds.md";
        labels: "../docs/spec/labels.md";
        label_noise: "../docs/spec/label-noise.md";
        training: "../docs/spec/training.md";
        cotraining: "../docs/spec/cotraining.md";
        fedgraph: "../docs/spec/fedgraph.md";
        pssl: "../docs/spec/pssl.md";
        series: "../docs/spec/series.md";
        record: "../docs/spec/record.md";
        lengths: "../docs/spec/lengths.md";
        scaling: "../docs/spec/scaling.md";
    }
}
