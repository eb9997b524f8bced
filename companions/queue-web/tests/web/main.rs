//! The dashboard and its API on a real Redis, and its pages in a real browser.

mod asynqmon;
mod axe;
mod batches;
mod browser;
mod cost;
mod failures;
mod feed;
mod headers;
mod limits;
mod live;
mod login;
mod pages;
mod rights;
mod routes;
mod support;
mod texts;
