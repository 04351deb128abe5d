//! Compares cryprot-ot with `undertone bench ot`: random transfers with hashed keys, two threads,
//! one run after the other.
//!
//! Run `cargo run --release` here, after `cargo build --release` in the root. The two cannot be one
//! program, because cryprot pins another version of the `aes` crate. cryprot talks QUIC over
//! loopback, undertone talks between threads: read the ratio with that in mind.

use std::error::Error;
use std::process::Command;
use std::time::Instant;

use cryprot_core::Block;
use cryprot_core::alloc::HugePageMemory;
use cryprot_net::Connection;
use cryprot_net::testing::local_conn;
use cryprot_ot::extension::{
    MaliciousOtExtensionReceiver, MaliciousOtExtensionSender, SemiHonestOtExtensionReceiver,
    SemiHonestOtExtensionSender,
};
use cryprot_ot::{RotReceiver, RotSender, random_choices};
use rand::SeedableRng;
use rand::rngs::StdRng;

const COUNT: usize = 1 << 24;
const REPEAT: usize = 3;

type Anything = Box<dyn Error + Send + Sync>;

macro_rules! million_per_second {
    ($sender:ident, $receiver:ident, $a:expr, $b:expr) => {{
        let (a, b): (&mut Connection, &mut Connection) = ($a, $b);
        let mut rng = StdRng::seed_from_u64(1);
        let choices = random_choices(COUNT, &mut rng);
        let mut sender = $sender::new_with_rng(a.sub_connection(), rng);
        let mut receiver = $receiver::new_with_rng(b.sub_connection(), StdRng::seed_from_u64(2));
        tokio::try_join!(sender.do_base_ots(), receiver.do_base_ots())?;
        let mut sent: HugePageMemory<[Block; 2]> = HugePageMemory::zeroed(COUNT);
        let mut received: HugePageMemory<Block> = HugePageMemory::zeroed(COUNT);
        let clock = Instant::now();
        let one = tokio::spawn(async move { sender.send_into(&mut sent).await });
        let two = tokio::spawn(async move { receiver.receive_into(&mut received, &choices).await });
        let (one, two) = tokio::try_join!(one, two)?;
        one?;
        two?;
        COUNT as f64 / clock.elapsed().as_secs_f64() / 1e6
    }};
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main(worker_threads = 8)]
async fn main() -> Result<(), Anything> {
    let (mut a, mut b) = local_conn().await?;
    let (mut semi_honest, mut malicious) = (Vec::new(), Vec::new());
    for _ in 0..REPEAT {
        semi_honest.push(million_per_second!(
            SemiHonestOtExtensionSender,
            SemiHonestOtExtensionReceiver,
            &mut a,
            &mut b
        ));
        malicious.push(million_per_second!(
            MaliciousOtExtensionSender,
            MaliciousOtExtensionReceiver,
            &mut a,
            &mut b
        ));
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/release/undertone");
    let count = COUNT.to_string();
    let repeat = REPEAT.to_string();
    let output = Command::new(program)
        .args(["bench", "ot", "--json", "--count", &count, "--repeat", &repeat])
        .output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    for (security, theirs, name) in [
        ("semi-honest", median(semi_honest), "IKNP"),
        ("malicious", median(malicious), "KOS"),
    ] {
        println!("{security}: cryprot-ot {name} {theirs:.1} million a second");
        let lines = report["extensions"].as_array().into_iter().flatten();
        for line in lines.filter(|line| line["security"] == security) {
            let ours = line["million_per_s"].as_f64().unwrap_or(0.0);
            println!(
                "  undertone f = {}: {ours:.1}, {:.2} bytes each: {:.1} times",
                line["field"],
                line["bytes_per_transfer"].as_f64().unwrap_or(0.0),
                ours / theirs
            );
        }
    }
    Ok(())
}
