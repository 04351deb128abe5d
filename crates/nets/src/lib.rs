//! Small neural networks that implement [`Model`](undertone_train::Model): a convolutional
//! network for square images, and a multilayer perceptron for feature rows. Either can have a mean
//! teacher.
//!
//! [`Net`] says how they train. [`Kind`] says how they are built. [`Local`] is a client's network
//! in vertical learning.
//!
//! # Reproducibility
//! The initial weights, the batches and the augmentations depend on seeds alone. On one machine the
//! same seeds give the same parameters bit by bit, whatever the number of threads. Machines with
//! other vector instructions add in another order: there the last bits differ.
#![forbid(unsafe_code)]

mod augment;
mod file;
mod graph;
mod kind;
mod local;
mod net;

pub use file::FileError;
pub use kind::{EMBEDDING, Kind};
pub use local::{Depth, Local, LocalSettings, unit_scale};
pub use net::{NOISE, Net, TEACHER_DECAY};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
