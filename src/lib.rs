//! roxe
