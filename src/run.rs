//! `roxe run`: a program that was made for a card, with our libraries, our adapters, and what such
//! programs look for in the file system.

mod program;
mod rights;
mod view;

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, exit, id};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use roxe_net::capture::numbered;
use roxe_verbs::cm::Bequest;
use roxe_verbs::{DeviceEntry, DeviceString, Error};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, test_kill_process, waitpid};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use crate::capture;
use crate::cli::RunArguments;
use crate::outcome::{Outcome, complain};

/// The command. It ends as the program does.
pub(crate) fn run(arguments: &RunArguments) -> Result<Outcome> {
    let (program, rest) = arguments.program.split_first().expect("clap asks for one");
    if let Some(parent) = arguments.begun_by {
        return program::become_it(parent, arguments.hand_on, program, rest);
    }
    let entries = match devices(arguments) {
        Ok(entries) => entries,
        Err(error) => return Ok(Outcome::usage(error)),
    };
    let read = arguments.config.file();
    for index in 0..entries.len() {
        if let Some(capture) = &arguments.capture {
            capture::overwrites_none(&numbered(capture, index), read.as_deref())?;
        }
    }
    if entries.is_empty() {
        complain("no interface is up and has an address: `ip address`, or name devices with -d");
        return Ok(Outcome::Lacking);
    }
    if program::libraries()?.is_none() {
        complain(format_args!(
            "{} is neither in ../lib/roxe nor in lib beside this program: \
             README.md says how it is built, docs/library.md how it is installed \
             (`cargo install` brings the program alone)",
            program::LIBRARY
        ));
        return Ok(Outcome::Lacking);
    }
    if let Some(why) = program::is_deaf(program) {
        complain(format_args!("{}: {why}", program.to_string_lossy()));
    }
    // Only root may, and most programs do without.
    let _ = view::make(&entries);
    // Who has nothing to give up has given it up.
    let _ = rights::give_up();
    let wants = entries.iter().any(|entry| entry.device.port.may_be_af_xdp());
    let mut command = program::begin(wants, program, rest);
    command.env("ROXE_DEVICES", in_variable(&entries));
    let stories = if arguments.quiet { None } else { nameless("roxe-stories") };
    if let Some(stories) = &stories {
        command.env("ROXE_STORIES", path_of(stories));
    }
    let will = nameless("roxe-will");
    if let Some(will) = &will {
        command.env("ROXE_WILL", path_of(will));
    }
    let signals = SignalsInfo::<WithOrigin>::new(PASSED_ON).context("signals")?;
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            complain(format_args!("{}: {error}", program.to_string_lossy()));
            return Ok(Outcome::Lacking);
        }
    };
    let status = wait(Pid::from_child(&child), signals)?;
    if let Some(will) = will {
        part_for_the_dead(entries, &will);
    }
    if let Some(stories) = stories.filter(|_| !status.success()) {
        tell(stories);
    }
    exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
}

/// The adapters that the program shall have, each with a name.
fn devices(arguments: &RunArguments) -> Result<Vec<DeviceEntry>, Error> {
    let entries = match &arguments.devices {
        // The name of one that is known.
        Some(name) if !name.contains(':') => match arguments.config.find(name) {
            Ok(entry) => vec![entry],
            Err(Error::NoSuchDevice { .. }) => roxe_verbs::devices_named(name)?,
            Err(error) => return Err(error),
        },
        Some(named) => roxe_verbs::devices_named(named)?,
        None => arguments.config.devices()?,
    };
    let changed = |(index, entry): (usize, DeviceEntry)| {
        let mut text = entry.device.to_string();
        let name = if entry.name == text { format!("roxe{index}") } else { entry.name };
        if let Some(file) = &arguments.capture {
            text += &format!(",capture={}", numbered(file, index).display());
        }
        if let Some(rules) = &arguments.fault {
            text += &format!(",fault={rules}");
        }
        let device: DeviceString = text.parse()?;
        Ok(DeviceEntry { name, device, interface: entry.interface })
    };
    entries.into_iter().enumerate().map(changed).collect()
}

fn in_variable(entries: &[DeviceEntry]) -> String {
    let named = |entry: &DeviceEntry| format!("{}={}", entry.name, entry.device);
    entries.iter().map(named).collect::<Vec<_>>().join(";")
}

/// A file without a place, for what the program's libraries have to say: why queue pairs ended, and
/// which connections it has.
fn nameless(what: &str) -> Option<File> {
    memfd_create(what, MemfdFlags::CLOEXEC).ok().map(File::from)
}

/// Where others find it as long as we live.
fn path_of(file: &File) -> String {
    format!("/proc/{}/fd/{}", id(), file.as_raw_fd())
}

/// Parts from the peers of who was killed, as behind a card the kernel does it: they may wait for
/// that. An adapter that somebody else has taken meanwhile is left alone.
fn part_for_the_dead(entries: Vec<DeviceEntry>, will: &File) {
    let left = Bequest::read_all(will).unwrap_or_default();
    let is_dead = |process: u32| {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    };
    for mut entry in entries {
        let of_it = left.iter().filter(|it| it.device == entry.name && is_dead(it.process));
        let connections: Vec<_> = of_it.map(|it| it.connection).collect();
        if connections.is_empty() {
            continue;
        }
        // The program's recording is done, and nothing is to be lost any more.
        (entry.device.capture, entry.device.fault) = (None, None);
        if let Ok(adapter) = entry.open() {
            adapter.part_for(&connections, PARTING);
        }
    }
}

/// How long peers have to answer: the adapter is taken meanwhile.
const PARTING: Duration = Duration::from_millis(200);

fn tell(mut stories: File) {
    let mut text = String::new();
    if stories.rewind().and_then(|()| stories.read_to_string(&mut text)).is_ok() {
        text.lines().for_each(complain);
    }
}

/// Waits for the end of the program, and passes on what comes for it meanwhile.
fn wait(program: Pid, mut signals: SignalsInfo<WithOrigin>) -> io::Result<ExitStatus> {
    let handle = signals.handle();
    let passing = thread::spawn(move || {
        for origin in signals.forever() {
            // What is typed goes to the program too, without us.
            let was_typed = matches!(origin.cause, Cause::Kernel);
            if let Some(signal) = Signal::from_named_raw(origin.signal)
                && !was_typed
            {
                let _ = kill_process(program, signal); // It may have ended.
            }
        }
    });
    let status = end_of(program);
    handle.close();
    let _ = passing.join();
    status
}

/// Waits for it. When the program rests as jobs do, we rest too, so that who started us sees it,
/// and has us go on by SIGCONT. Whether it rests is for the program and the kernel to say: it may
/// have use for `^Z`, and a job that nobody watches over is not stopped.
fn end_of(program: Pid) -> io::Result<ExitStatus> {
    loop {
        let seen = retry_on_intr(|| waitpid(Some(program), WaitOptions::UNTRACED))?;
        let Some((_, status)) = seen else { continue };
        match status.stopping_signal() {
            Some(SIGTSTP | SIGTTIN | SIGTTOU) => kill_process(getpid(), Signal::STOP)?,
            // Whoever stopped it thus meant it alone.
            Some(_) => {}
            None => return Ok(ExitStatus::from_raw(status.as_raw())),
        }
    }
}

/// What the program shall get that is sent to us.
const PASSED_ON: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT];
