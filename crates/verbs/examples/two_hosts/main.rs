//! The main job: two hosts exchange RoCEv2. Every operation once with its data verified, how fast
//! it goes beside the kernel's own sockets, and what becomes of it when packets are lost.
//!
//! As root it makes two network namespaces joined by a veth cable and runs an adapter on AF_XDP in
//! each, in a process of its own. Without root, two adapters on UDP sockets of this host; where the
//! port is taken, two adapters in this process, joined by memory. `two_hosts CAPTURE` writes what
//! the lossy network carried there.

mod host;
mod kernel;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;

use std::error::Error;
use std::net::TcpListener;
use std::process::{Command, ExitCode};
use std::{env, thread};

use namespace::Cable;
use roxe_verbs::connect::Listener;
use roxe_verbs::{Context, open};

use host::Step;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Where a host waits for its peer, and where for that of its kernel.
const PORTS: [u16; 2] = [18515, 18516];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", device] => {
            Server::bind("0.0.0.0", PORTS).and_then(|it| it.serve(&open(device)?))
        }
        ["client", step, device, host] => {
            let step = step.parse().map_err(Into::into);
            step.and_then(|step: Step| host::work(step, &open(device)?, host, PORTS))
        }
        [] => main_job("two_hosts.pcapng"),
        [capture] => main_job(capture),
        _ => Err("usage: two_hosts [CAPTURE]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("two_hosts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn main_job(capture: &str) -> Outcome {
    let place = Place::find()?;
    for step in Step::ALL {
        println!("\n{}", step.title());
        let options = match step {
            Step::Loss => format!(",capture={capture},fault=drop 1%"),
            Step::Operations | Step::Speed => String::new(),
        };
        place.run(step, &options)?;
    }
    println!("\nwhat the lossy network carried is in {capture}");
    Ok(())
}

/// Where the two hosts are.
enum Place {
    /// In two network namespaces.
    Namespaces(Cable),
    /// In this process: their devices, and the address at which the server's kernel is reached.
    Here([&'static str; 2]),
}

impl Place {
    fn find() -> Outcome<Self> {
        if rustix::process::geteuid().is_root() {
            println!("two network namespaces, a veth cable, an adapter on AF_XDP in each");
            return Ok(Self::Namespaces(Cable::new(4200)));
        }
        let sockets = ["udp:127.0.0.2", "udp:127.0.0.1"];
        match sockets.map(open) {
            [Ok(_), Ok(_)] => {
                println!("two adapters on UDP sockets of this host (root would get AF_XDP)");
                Ok(Self::Here(sockets))
            }
            [Err(why), _] | [_, Err(why)] => {
                println!("two adapters in this process, joined by memory, as {why}");
                Ok(Self::Here(["memory:two_hosts"; 2]))
            }
        }
    }

    /// Lets a server serve and a client work.
    fn run(&self, step: Step, options: &str) -> Outcome {
        match self {
            Self::Namespaces(cable) => {
                let device = format!("xdp:va{options}");
                let client = program(&["client", step.name(), &device, "192.0.2.2"])?;
                let (client, server) = cable.b.run(|| -> Outcome<_> {
                    let mut server = program(&["server", "xdp:vb"])?.spawn()?;
                    let client = cable.a.run(|| { client }.status());
                    if !client.as_ref().is_ok_and(|status| status.success()) {
                        let _ = server.kill();
                    }
                    Ok((client?, server.wait()?))
                })?;
                let right = client.success() && server.success();
                if right { Ok(()) } else { Err(format!("{} failed", step.name()).into()) }
            }
            Self::Here([client, server]) => {
                let (client, server) = (open(&format!("{client}{options}"))?, open(server)?);
                let listening = Server::bind("127.0.0.1", [0, 0])?;
                let ports = listening.ports()?;
                thread::scope(|scope| {
                    let serving = scope.spawn(|| listening.serve(&server));
                    host::work(step, &client, "127.0.0.1", ports)?;
                    serving.join().map_err(|_| "the server panicked")?
                })
            }
        }
    }
}

/// This program once more, in a process that ends with the thread that started it.
fn program(arguments: &[&str]) -> Outcome<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(env::current_exe()?).args(arguments);
    Ok(command)
}

/// A server's sockets.
struct Server {
    roxe: Listener,
    kernel: TcpListener,
}

impl Server {
    fn bind(address: &str, [roxe, kernel]: [u16; 2]) -> Outcome<Self> {
        let (roxe, kernel) = (Listener::bind((address, roxe))?, (address, kernel));
        Ok(Self { roxe, kernel: TcpListener::bind(kernel)? })
    }

    fn ports(&self) -> Outcome<[u16; 2]> {
        Ok([self.roxe.local_address()?.port(), self.kernel.local_addr()?.port()])
    }

    fn serve(&self, context: &Context) -> Outcome {
        let kernel = self.kernel.try_clone()?;
        // It ends with the process: a client need not come.
        thread::spawn(move || kernel::serve(&kernel));
        host::serve(context, &self.roxe)
    }
}
