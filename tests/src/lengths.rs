//! The lengths of messages, predicted and measured.

use std::collections::BTreeMap;

use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::plan::lengths::{Messages, Take};

/// Sorted payload lengths for each sender, receiver and phase.
pub type Lengths = BTreeMap<(PartyId, PartyId, u8), Vec<usize>>;

/// The lengths of the messages that `predict` gives.
pub fn predicted(predict: impl FnOnce(&mut Take<'_>)) -> Lengths {
    let mut lengths = Lengths::new();
    predict(&mut |messages: Messages| {
        let link = (messages.from, messages.to, messages.phase.id);
        let list = lengths.entry(link).or_default();
        list.extend((0..messages.count).map(|_| messages.len));
    });
    sorted(lengths)
}

/// The lengths of the messages that cross the network of a run.
pub fn measured<T>(run: impl FnOnce(Network<'_>) -> T) -> (T, Lengths) {
    let mut sent = Lengths::new();
    let network = Network::new().intercept(|from, to, frame| {
        let list = sent.entry((from, to, frame[4])).or_default();
        list.push(frame.len() - HEADER_LEN);
    });
    let result = run(network);
    (result, sorted(sent))
}

fn sorted(mut lengths: Lengths) -> Lengths {
    lengths.values_mut().for_each(|list| list.sort_unstable());
    lengths
}
