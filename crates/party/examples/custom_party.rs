//! A protocol of your own: an auction. Bidders learn the highest bid, but not its bidder.
//!
//! `cargo run -p undertone-party --example custom_party` prints:
//!
//! ```text
//! bid: 0 bytes sent, 195 received
//! end: 195 bytes sent, 0 received
//! the highest bid is 210
//! ```

use undertone_party::*;

const BID: Phase = Phase { id: 1, name: "bid" };
const END: Phase = Phase { id: 2, name: "end" };

/// A client: sends its bid and learns the highest bid.
async fn bidder(io: Io, bid: u8) -> Result<u8, Abort> {
    io.send(PartyId::SERVER, [bid].as_slice());
    io.phase(END).await;
    read(PartyId::SERVER, &io.require(PartyId::SERVER).await?)
}

/// The server: collects the bids and announces the highest. If a client drops out, `require` ends
/// the auction; with `recv` the server would continue without the client.
async fn auctioneer(io: Io, clients: Vec<PartyId>) -> Result<u8, Abort> {
    let mut highest = 0;
    for id in &clients {
        highest = highest.max(read(*id, &io.require(*id).await?)?);
    }
    io.phase(END).await;
    io.send_all(clients.into_iter().map(|id| (id, vec![highest])));
    Ok(highest)
}

/// A message of one byte. A malformed message ends the run; the error names its sender.
fn read(from: PartyId, message: &[u8]) -> Result<u8, Abort> {
    let mut reader = Reader::new(message);
    let bid = reader.u8("bid");
    reader.finish().and(bid).map_err(Abort::malformed(from))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Three bidders and the server, each driven by an endpoint.
    let session = SessionId::random()?;
    let ids: Vec<PartyId> = (0..3).map(PartyId::client).collect();
    let node = |id, script| Endpoint::new(id, session, Limits::default(), script);
    let script = Script::new(BID, |io| auctioneer(io, ids.clone()));
    let mut nodes = vec![node(PartyId::SERVER, script)];
    for (id, bid) in ids.iter().zip([120, 210, 150]) {
        nodes.push(node(*id, Script::new(BID, |io| bidder(io, bid))));
    }

    // A network in memory carries the frames.
    let mut links: Vec<&mut dyn Node> = nodes.iter_mut().map(|node| node as _).collect();
    Network::new().run(&mut links)?;

    // The server's ledger counts whole frames: a header of 64 bytes and a bid of one byte.
    for (phase, cost) in nodes[0].ledger().phases() {
        let (sent, received) = (cost.bytes_sent, cost.bytes_received);
        println!("{phase}: {sent} bytes sent, {received} received");
    }
    println!("the highest bid is {}", nodes.remove(0).finish()?.0);
    Ok(())
}
