// Package interop has the tests that put Go asynq and the Rust queue on one
// Redis. See PEER.md for the Rust programs they run.
package interop
