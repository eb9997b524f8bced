//! The dashboard and its API on a real Redis, and its pages in a real browser.

mod browser;
mod live;
mod rights;
mod routes;
mod support;
mod texts;
