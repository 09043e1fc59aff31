//! `roxe top`: what running adapters do, on a terminal's screen.

mod screen;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::text::Text;

use crate::adapters::{Adapter, Snapshot};
use crate::cli::TopArguments;
use crate::outcome::{Outcome, complain};
use screen::{Row, Screen};

/// The command.
pub(crate) fn run(arguments: &TopArguments) -> Result<Outcome> {
    let pause = Duration::from_secs_f64(arguments.interval);
    if arguments.once {
        return once(arguments, pause);
    }
    if !io::stdout().is_terminal() {
        complain(
            "top draws on a terminal, and standard output is none: --once prints one screen, \
             `roxe stat --watch` goes on",
        );
        return Ok(Outcome::Lacking);
    }
    // That there is none is said before the screen is taken.
    if let Err(outcome) = Adapter::find(arguments.device.as_deref()) {
        return Ok(outcome);
    }
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, arguments.device.as_deref(), pause);
    ratatui::restore();
    result?;
    Ok(Outcome::Right)
}

/// One screen, as text, of two looks.
fn once(arguments: &TopArguments, pause: Duration) -> Result<Outcome> {
    if let Err(outcome) = Adapter::find(arguments.device.as_deref()) {
        return Ok(outcome);
    }
    let mut looks = Looks::default();
    looks.look(arguments.device.as_deref());
    thread::sleep(pause);
    let mut screen = Screen::default();
    screen.set(looks.look(arguments.device.as_deref()));
    let text = screen.text(TEXT_WIDTH, usize::MAX);
    io::stdout().write_all(plain(&text).as_bytes())?;
    Ok(Outcome::Right)
}

/// Without styles.
fn plain(text: &Text<'_>) -> String {
    let line = |line: &ratatui::text::Line<'_>| {
        let spans: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        format!("{}\n", spans.trim_end())
    };
    text.lines.iter().map(line).collect()
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    device: Option<&str>,
    pause: Duration,
) -> io::Result<()> {
    let mut looks = Looks::default();
    let mut screen = Screen::default();
    loop {
        if !screen.is_paused() {
            screen.set(looks.look(device));
        }
        let next = Instant::now() + pause;
        loop {
            terminal.draw(|frame| {
                let Rect { width, height, .. } = frame.area();
                let text = screen.text(width.into(), height.into());
                frame.render_widget(text, frame.area());
            })?;
            if !event::poll(next.saturating_duration_since(Instant::now()))? {
                break;
            }
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && !obey(key, &mut screen)
            {
                return Ok(());
            }
        }
    }
}

/// Does what a key asks for. Says whether to go on.
fn obey(key: KeyEvent, screen: &mut Screen) -> bool {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('s') => screen.sort_otherwise(),
        KeyCode::Char('p' | ' ') => screen.pause_or_go_on(),
        KeyCode::Char('?' | 'h') => screen.help_or_not(),
        KeyCode::Down | KeyCode::Char('j') => screen.scroll(1),
        KeyCode::Up | KeyCode::Char('k') => screen.scroll(-1),
        KeyCode::PageDown => screen.scroll(10),
        KeyCode::PageUp => screen.scroll(-10),
        KeyCode::Home => screen.scroll(isize::MIN),
        _ => {}
    }
    true
}

/// What adapters said, from one look to the next.
#[derive(Default)]
struct Looks(BTreeMap<String, Snapshot>);

impl Looks {
    /// All adapters as they are now: those that came and went too.
    fn look(&mut self, device: Option<&str>) -> Vec<Row> {
        let mut now = BTreeMap::new();
        let mut rows = Vec::new();
        // Who does not answer just now is not shown just now.
        let adapters = Adapter::all().map(|open| open.adapters).unwrap_or_default();
        for mut adapter in adapters {
            if !device.is_none_or(|device| adapter.is(device)) {
                continue;
            }
            let Ok(snapshot) = adapter.ask(true) else { continue };
            let before = self.0.remove(&adapter.endpoint);
            rows.push(Row::new(&adapter, &snapshot, before.as_ref()));
            now.insert(adapter.endpoint, snapshot);
        }
        self.0 = now;
        rows
    }
}

/// Columns of a screen that is printed: reasons are not cut.
const TEXT_WIDTH: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_what_the_help_says() {
        let mut screen = Screen::default();
        let mut press = |code, modifiers| obey(KeyEvent::new(code, modifiers), &mut screen);
        assert!(press(KeyCode::Char('p'), KeyModifiers::NONE));
        assert!(press(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!press(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(!press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(screen.is_paused());
    }
}
