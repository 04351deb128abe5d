//! The examples at the end of each benchmark's help.

pub(super) const PIPELINE: &str = "\
Examples:
  undertone bench pipeline
  undertone bench pipeline --rows 10000 --separation 0 --threads 2";

pub(super) const LABEL_PRIVACY: &str = "\
Examples:
  undertone bench label-privacy data/digits.npz
  undertone bench label-privacy data/digits.npz --labelled 0.3 --runs 20";

pub(super) const CLIENTS: &str = "\
Examples:
  undertone bench clients
  undertone bench clients --clients 200,1000 --threads 2
  undertone bench clients --clients 5 --rows 4000 --bits 4096 --backend lwe";

pub(super) const CELLS: &str = "\
Examples:
  undertone bench cells
  undertone bench cells --rows 100000 --cells 250 --probes 5 --threads 2";

pub(super) const DISTANCES: &str = "\
Examples:
  undertone bench distances --rows 1000
  undertone bench distances --backend shade --clients 3 --rows 200
  undertone bench distances --backend phe --key-bits 2048 --rows 100 --repeat 1";

pub(super) const GARBLE: &str = "\
Examples:
  undertone bench garble
  undertone bench garble --rows 100000 --needed 0 --field 8";

pub(super) const OT: &str = "\
Examples:
  undertone bench ot
  undertone bench ot --count 2^20 --field 1,4 --threads 2";

pub(super) const PAILLIER: &str = "\
Examples:
  undertone bench paillier
  undertone bench paillier --key-bits 3072 --batch 256 --repeat 3";

pub(super) const NETWORK: &str = "\
Examples:
  undertone bench network data/digits.npz
  undertone bench network data/digits.npz --backend phe --rate 100 --delay 40
  undertone bench network --values 1000000 --clients 10";

pub(super) const SUMS: &str = "\
Examples:
  undertone bench sums
  undertone bench sums --clients 1000 --entries 10000 --drop 0.1 --malicious-server";

pub(super) const VOTES: &str = "\
Examples:
  undertone bench votes
  undertone bench votes --rows 100000 --clients 10 --consensus majority --repeat 1";

pub(super) const ROUND: &str = "\
Examples:
  undertone bench round
  undertone bench round --backend lwe --words 100000 --repeat 3";

pub(super) const GRAPH: &str = "\
Examples:
  undertone bench graph
  undertone bench graph --clients 5 --clusters 20 --steps 50 --json";

pub(super) const PAIRS: &str = "\
Examples:
  undertone bench pairs
  undertone bench pairs --rows 72 --features 64 --repeat 1";
