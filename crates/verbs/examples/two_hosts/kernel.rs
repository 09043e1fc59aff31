//! What the kernel's own sockets do on the same cable.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant as Clock};

use crate::Outcome;

/// Bytes of a datagram: as a packet's payload.
const DATAGRAM: usize = 4096;

/// Takes what clients send, and tells how many bytes it was. A client says first how it will send:
/// `T` on the same connection, `U` by datagrams to the port that is answered.
pub(crate) fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        // A client that goes away hears nothing.
        let _ = stream.and_then(sink);
    }
}

fn sink(mut stream: TcpStream) -> io::Result<()> {
    let mut how = [0];
    stream.read_exact(&mut how)?;
    let mut bytes = vec![0; 1 << 20];
    let mut total: u64 = 0;
    if how == *b"T" {
        loop {
            match stream.read(&mut bytes)? {
                0 => break,
                len => total += len as u64,
            }
        }
    } else {
        let socket = UdpSocket::bind((stream.local_addr()?.ip(), 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        stream.write_all(&socket.local_addr()?.port().to_be_bytes())?;
        stream.set_nonblocking(true)?;
        loop {
            match socket.recv(&mut bytes) {
                Ok(len) => total += len as u64,
                // Silence: has the client said that it has sent all?
                Err(_) if matches!(stream.read(&mut how), Ok(0)) => break,
                Err(_) => {}
            }
        }
        stream.set_nonblocking(false)?;
    }
    stream.write_all(&total.to_be_bytes())
}

/// Bits a second that arrive through a TCP connection.
pub(crate) fn tcp(host: &str, port: u16, time: Duration) -> Outcome<f64> {
    let mut stream = TcpStream::connect((host, port))?;
    stream.write_all(b"T")?;
    let (start, bytes) = (Clock::now(), vec![0; 1 << 20]);
    while start.elapsed() < time {
        stream.write_all(&bytes)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let total = total(&mut stream)?;
    Ok(total / start.elapsed().as_secs_f64())
}

/// Bits a second that arrive as datagrams.
pub(crate) fn udp(host: &str, port: u16, time: Duration) -> Outcome<f64> {
    let mut stream = TcpStream::connect((host, port))?;
    stream.write_all(b"U")?;
    let mut port = [0; 2];
    stream.read_exact(&mut port)?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((host, u16::from_be_bytes(port)))?;
    let (start, bytes) = (Clock::now(), [0; DATAGRAM]);
    while start.elapsed() < time {
        // Where there is no room for one, it is lost, as any datagram may be.
        let _ = socket.send(&bytes);
    }
    let sent = start.elapsed();
    stream.shutdown(Shutdown::Write)?;
    Ok(total(&mut stream)? / sent.as_secs_f64())
}

/// Bits that have arrived, as the server counts.
fn total(stream: &mut TcpStream) -> Outcome<f64> {
    let mut total = [0; 8];
    stream.read_exact(&mut total)?;
    Ok(u64::from_be_bytes(total) as f64 * 8.0)
}
