//! Federated averaging: five clients, one server, and the weighted mean of the clients' updates.
//!
//! The server learns the mean, the total weight and who contributed. It does not learn any client's
//! update or weight. One client drops out in the middle. The others finish without it.
//!
//! `cargo run --release -p undertone-sum --example secure_sum` prints:
//!
//! ```text
//! client 4 clipped 1 of its 3 values
//! client 3 dropped out
//! contributors: [client 0, client 1, client 2, client 4]
//! mean [1.5, 0.25, 0.5] of 400 examples
//! each client sent 902 bytes
//! ```

use undertone_kdf::Seed;
use undertone_party::{Endpoint, Limits, Network, Node, PartyId, SessionId};
use undertone_sum::{Rules, client, fixed::WeightedMean, server};

/// Each client's update and its weight: the number of examples that it was trained on.
const UPDATES: [([f32; 3], f64); 5] = [
    ([0.5, -1.0, 0.25], 100.0),
    ([0.25, 1.0, 0.75], 200.0),
    ([2.0, 0.0, 0.5], 50.0),
    ([1.0, 1.0, 1.0], 300.0),
    ([9.5, 0.0, 0.0], 50.0),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // All parties agree on the rules beforehand: values from -8 to 8, weights from 0 to 1000.
    let mean = WeightedMean::<u64>::new(8.0, 1000.0, UPDATES.len())?;
    let rules = Rules::plain(SessionId::random()?, WeightedMean::<u64>::words(3));

    // The clients. Each encodes its update; a value beyond the range is clipped and counted.
    let mut clients = Vec::new();
    for (place, (update, examples)) in UPDATES.iter().enumerate() {
        let me = PartyId::client(place);
        let encoded = mean.encode_clipped(update, *examples)?;
        if encoded.clipped > 0 {
            println!("{me} clipped {} of its 3 values", encoded.clipped);
        }
        let party = client(rules, me, encoded.words, Seed::from_os()?)?;
        clients.push(Endpoint::new(me, rules.session, Limits::default(), party));
    }

    // The server invites all five.
    let invited: Vec<PartyId> = clients.iter().map(Endpoint::id).collect();
    let party = server::<u64>(rules, invited.clone())?;
    let mut server = Endpoint::new(PartyId::SERVER, rules.session, Limits::default(), party);

    // A network in memory. Client 3 drops out after two messages. The others' words already carry
    // the masks that they share with it, but its own words never arrive.
    let mut network = Network::new().leave(PartyId::client(3), 2);
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    network.run(&mut nodes)?;

    // The server decodes the sum of the words.
    let (total, _) = server.finish()?;
    for id in invited {
        if !total.contributors.contains(&id) {
            println!("{id} dropped out");
        }
    }
    println!("contributors: {:?}", total.contributors);
    let mean = mean.decode(&total.shared).ok_or("no client has a weight")?;
    println!("mean {:?} of {} examples", mean.values, mean.weight);
    let costs = clients[0].ledger().phases();
    let sent: u64 = costs.map(|(_, cost)| cost.bytes_sent).sum();
    println!("each client sent {sent} bytes");
    Ok(())
}
