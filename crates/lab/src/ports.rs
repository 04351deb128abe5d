//! Ports for servers on this machine.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lies below the ports that systems give to whoever asks for any port.
const PORTS: Range<u32> = 12_000..32_000;

/// A free port of the loopback interface. No other call in this process returns it soon, and no
/// connection that another process opens takes it before a server listens on it.
pub fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97);
    loop {
        let port = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = (PORTS.start + port % PORTS.len() as u32) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
