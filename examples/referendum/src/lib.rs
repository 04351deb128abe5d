//! A sample application: clients answer a question by yes or no, and a secure sum counts.
//!
//! The server and every client learn how many said yes, and who answered. A single answer is hidden
//! as [`undertone::sum`] hides it, among those that the total leaves possible. A client answers
//! each question once: its record sees to it, whatever the answer.
#![forbid(unsafe_code)]

mod application;
mod job;
mod terms;

pub use application::{Client, Server};
pub use job::Job;
pub use terms::Terms;

/// How many said yes, and how many answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// The clients that said yes.
    pub yes: u64,
    /// The clients that answered.
    pub answers: usize,
}

/// All parties of a referendum in one process.
pub type Simulation = undertone::job::Simulation<Server, Client>;
