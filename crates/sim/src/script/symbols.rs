//! What numbers stand for.

use super::mistake::Mistake;
use super::parse::show_range;
use super::syntax::{Arguments, Expression, Value};

/// Who knows what symbols stand for.
pub(super) trait Symbols {
    /// What an object's part is now. `qp` is whose `peer.qpn` is meant.
    fn symbol(&self, object: &str, part: &str, qp: Option<&str>) -> Result<u64, Mistake>;

    /// An argument's number. `qp` is whose `peer.qpn` is meant.
    fn number(
        &self,
        arguments: &Arguments,
        name: &str,
        qp: Option<&str>,
    ) -> Result<Option<u64>, Mistake> {
        match arguments.get(name) {
            Some(Value::Number(expression)) => match self.evaluate(expression, qp)? {
                value if value <= expression.most => Ok(Some(value)),
                value => {
                    let range = show_range(0, expression.most);
                    Err(Mistake::at(name, format!("`{name}` must be {range}, and is 0x{value:x}")))
                }
            },
            Some(_) => Err(Mistake::at(name, format!("`{name}` must be a number here"))),
            None => Ok(None),
        }
    }

    /// The same, or what it is if nothing is said.
    fn number_or(&self, arguments: &Arguments, name: &str, default: u64) -> Result<u64, Mistake> {
        Ok(self.number(arguments, name, None)?.unwrap_or(default))
    }

    /// What an expression is now.
    fn evaluate(&self, expression: &Expression, qp: Option<&str>) -> Result<u64, Mistake> {
        let Some((object, part)) = &expression.symbol else { return Ok(expression.plus) };
        let value = self.symbol(object, part, qp)?;
        let by = expression.plus.cast_signed();
        value.checked_add_signed(by).ok_or_else(|| {
            let what = format!("{object}.{part} is 0x{value:x}: {by:+} goes beyond 64 bits");
            Mistake::at(object, what)
        })
    }
}

/// Before there is anything, every symbol stands for 0.
#[derive(Debug)]
pub(super) struct NoSymbols;

impl Symbols for NoSymbols {
    fn symbol(&self, _: &str, _: &str, _: Option<&str>) -> Result<u64, Mistake> {
        Ok(0)
    }

    fn evaluate(&self, expression: &Expression, _: Option<&str>) -> Result<u64, Mistake> {
        Ok(if expression.symbol.is_some() { 0 } else { expression.plus })
    }
}

/// The numbers among a frame's arguments.
pub(super) struct Numbers<'a> {
    pub(super) symbols: &'a dyn Symbols,
    pub(super) arguments: &'a Arguments,
    /// Whose frame it is.
    pub(super) qp: &'a str,
}

impl Numbers<'_> {
    /// A number, if it is said.
    pub(super) fn get(&self, name: &str) -> Result<Option<u64>, Mistake> {
        self.symbols.number(self.arguments, name, Some(self.qp))
    }

    /// The same, or what it is otherwise.
    pub(super) fn or(&self, name: &str, default: u64) -> Result<u64, Mistake> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    /// A number that must be said.
    pub(super) fn need(&self, name: &str) -> Result<u64, Mistake> {
        self.get(name)?.ok_or_else(|| format!("this packet needs `{name}`").into())
    }
}
