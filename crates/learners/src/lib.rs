//! Five learners for [co-training](undertone_cotrain): a decision tree, a random forest, boosted
//! trees, logistic regression, and a multilayer perceptron. Well-kept libraries train them.
//!
//! [`Kind`] names them and says with which parameters they train. [`Classifier`] can change one.
//!
//! # Reproducibility
//! What a learner predicts depends on its seed and on the rows it learned from, in their order. It
//! does not depend on the number of threads, nor on what the learner learned before.
#![forbid(unsafe_code)]

mod boosted;
mod classifier;
mod kind;
mod linear;
mod perceptron;
mod trees;

pub use classifier::{Classifier, LARGEST};
pub use kind::{Kind, TREES};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
