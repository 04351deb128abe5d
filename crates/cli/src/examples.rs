//! The examples at the end of each help.

/// Of `undertone` itself.
pub(crate) const ALL: &str = "\
Examples:
  undertone label data/digits.npz
  undertone label --client a.npz --client b.npz --client c.npz
  undertone sum --clients 100 --entries 1000000 --drop 0.1

`undertone COMMAND --help` shows the options and examples of a command.

Exit codes:
  0    done
  2    wrong arguments
  65   unusable data
  66   a file that cannot be read
  69   an address that cannot be reached or listened on
  70   a protocol was aborted
  71   the operating system refused something
  73   a file that cannot be written
  77   a peer is not trusted, or refuses
  130  stopped by a signal";

/// Of `label`.
pub(crate) const LABEL: &str = "\
Examples:
  undertone label data/digits.npz
  undertone label data/digits.npz --clients 8 --split dirichlet:0.3 --labelled 0.05
  undertone label --client a.npz --client b.npz --client c.npz --out labels";

/// Of `plan`.
pub(crate) const PLAN: &str = "\
Examples:
  undertone plan --clients 5 --rows 1797 --features 64 --classes 10 --link 100Mbit/s,40ms
  undertone plan job.toml --clients 20 --rows 100000 --features 64 --signed --backends psm,lwe
  undertone plan --application sum --clients 100 --values 1000000 --set rounds=50 --json";

/// Of `train`.
#[cfg(feature = "train")]
pub(crate) const TRAIN: &str = "\
Examples:
  undertone train data/digits.npz
  undertone train data/digits.npz --labelled 50 --arms labels,xclp,xclp+mt --plot curves.svg
  undertone train data/digits.npz --clients 20 --split shards --rounds 200 --set sampled=10 --json";

/// Of `cotrain`.
#[cfg(feature = "train")]
pub(crate) const COTRAIN: &str = "\
Examples:
  undertone cotrain data/breast_cancer.npz
  undertone cotrain data/breast_cancer.npz --learners tree,forest,logistic --plot accuracy.svg
  undertone cotrain data/digits.npz --clients 10 --split dirichlet:0.3 --set noise=krr:2 --json";

/// Of `fedgraph`.
#[cfg(feature = "train")]
pub(crate) const FEDGRAPH: &str = "\
Examples:
  undertone fedgraph data/digits.npz
  undertone fedgraph data/digits.npz --clients 20 --cluster 5 --cut server --plot accuracy.svg
  undertone fedgraph data/breast_cancer.npz --features 0.2 --clusters-only --json";

/// Of `pssl`.
pub(crate) const PSSL: &str = "\
Examples:
  undertone pssl data/digits.npz --classes 1,2,3,4
  undertone pssl data/digits.npz --clients 5 --labelled 0.1 --set d_min=2 --plot edges.svg
  undertone pssl data/digits.npz --classes 1,2,3,4 --set reveal=accept --json";

/// Of `fedgraph`.
#[cfg(feature = "train")]
pub(crate) fn fedgraph() -> String {
    with_keys(FEDGRAPH, include_str!("keys/fedgraph.toml"))
}

/// Of `label`.
pub(crate) fn label() -> String {
    with_keys(LABEL, include_str!("keys/label.toml"))
}

/// The examples of an experiment, with the keys of its job.
fn with_keys(examples: &str, keys: &str) -> String {
    let mut head = "Keys of the job, for --set, with their values in the job file of a trial. \
                    What\nfollows from the data or from other options cannot be set."
        .to_owned();
    if keys.contains("malicious_server") {
        head += " Here malicious_server\nis false unless it is set.";
    }
    format!("{examples}\n\n{head}\n{keys}")
}

/// Of `pssl`.
pub(crate) fn pssl() -> String {
    with_keys(PSSL, include_str!("keys/pssl.toml"))
}

/// Of `train`.
#[cfg(feature = "train")]
pub(crate) fn train() -> String {
    with_keys(TRAIN, include_str!("keys/train.toml"))
}

/// Of `cotrain`.
#[cfg(feature = "train")]
pub(crate) fn cotrain() -> String {
    with_keys(COTRAIN, include_str!("keys/cotrain.toml"))
}

/// Of `sum`.
pub(crate) const SUM: &str = "\
Examples:
  undertone sum --clients 100 --entries 1000000 --drop 0.1
  undertone sum --clients 20 --entries 5000 --malicious-server --json
  undertone sum --clients 50 --neighbours 10 --threshold 6";

/// Of `deal`.
pub(crate) const DEAL: &str = "\
Examples:
  undertone deal data/digits.npz --out trial/data
  undertone deal data/digits.npz --out trial/data --clients 3 --split dirichlet:0.5 --labelled 0.2";

/// Of `keys`.
pub(crate) const KEYS: &str = "\
Examples:
  undertone keys --out trial/keys --clients 3
  undertone keys --out trial/keys --name ward-1 --name ward-2 --name ward-3 \\
      --host undertone.example";

/// Of `record`.
pub(crate) const RECORD: &str = "\
Examples:
  undertone record new ward-7
  undertone record show ward-7
  undertone record allow ward-7 session --reason \"approved\"";

/// Of `record new`.
pub(crate) const RECORD_NEW: &str = "\
Examples:
  undertone record new ward-7
  undertone record new ward-7 --records /var/lib/undertone/records";

/// Of `record show`.
pub(crate) const RECORD_SHOW: &str = "\
Examples:
  undertone record show ward-7
  undertone record show client-0 --records trial/keys/client-0/records
  undertone record show ward-7 --json";

/// Of `record allow`.
pub(crate) const RECORD_ALLOW: &str = "\
Examples:
  undertone record allow ward-7 session --reason \"approved\"
  undertone record allow ward-7 contributors --reason \"ward-4-left\"
  undertone record allow ward-7 new-job --reason \"approved\" --records /var/lib/undertone/records";

/// Of `serve`.
pub(crate) const SERVE: &str = "\
Examples:
  undertone serve --roster trial/keys/roster.toml --jobs 1
  undertone serve --roster roster.toml --listen 0.0.0.0:7431 --status 127.0.0.1:7432 --wait 60
  undertone serve --roster roster.toml --job sum.toml --checkpoint mean.bin --means means";

/// Of `join`.
pub(crate) const JOIN: &str = "\
Examples:
  undertone join --server localhost:7431 --keys trial/keys/client-0 \\
      --data trial/data/client-0.npz --out labels.csv
  undertone join --server localhost:7431 --keys trial/keys/client-0 \\
      --application sum --data update-{round}.npz --weight 120 --out mean-{round}.npz
  undertone join --server localhost:7431 --keys trial/keys/client-0 \\
      --application sum --data update.npz --each ./train.sh --out mean-{round}.npz";

/// Of `status`.
pub(crate) const STATUS: &str = "\
Examples:
  undertone status
  undertone status 127.0.0.1:7432 --watch
  undertone status --json";

/// Of `ot`.
pub(crate) const OT: &str = "\
Examples:
  undertone ot
  undertone ot --count 2^24 --field 2 --against malicious";

/// Of `paillier`.
pub(crate) const PAILLIER: &str = "\
Examples:
  undertone paillier keygen --secret secret.json --public public.json
  undertone paillier bench --key-bits 3072";

/// Of `paillier keygen`.
pub(crate) const KEYGEN: &str = "\
Examples:
  undertone paillier keygen --secret secret.json --public public.json
  undertone paillier keygen --secret secret.json --bits 4096 --json
  undertone paillier keygen --secret secret.json --safe-primes";

/// Of `paillier bench`.
pub(crate) const PAILLIER_BENCH: &str = "\
Examples:
  undertone paillier bench
  undertone paillier bench --key-bits 3072 --batch 256 --repeat 3";

/// Of `bench`.
pub(crate) const BENCH: &str = "\
Examples:
  undertone bench pipeline --rows 5000
  undertone bench sums --clients 100 --repeat 3
  undertone bench network data/digits.npz --rate 100 --delay 40";

/// Of `costs`.
pub(crate) const COSTS: &str = "\
Examples:
  undertone costs --quick
  undertone costs --longest 10 --out costs.html";

/// Of `completions`.
pub(crate) const COMPLETIONS: &str = "\
Examples:
  undertone completions bash > ~/.local/share/bash-completion/completions/undertone
  undertone completions zsh > ~/.zfunc/_undertone
  undertone completions fish > ~/.config/fish/completions/undertone.fish";
