package main

import (
	"math"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/wire"
)

// numberCases are the limits of the numeric fields that a Go client can
// reach. Negative numbers take ten bytes on the wire.
func numberCases() []enqueuedCase {
	one := func(name string, opt asynq.Option, want wire.Fields) enqueuedCase {
		return enqueuedCase{name: "number_" + name, typ: "n", opts: []asynq.Option{opt}, want: want}
	}
	longest := time.Duration(math.MaxInt64)
	return []enqueuedCase{
		one("retry_zero", asynq.MaxRetry(0), wire.Fields{"retry": int64(0)}),
		one("retry_negative_is_zero", asynq.MaxRetry(-5), wire.Fields{"retry": int64(0)}),
		one("retry_one_byte", asynq.MaxRetry(127), wire.Fields{"retry": int64(127)}),
		one("retry_two_bytes", asynq.MaxRetry(128), wire.Fields{"retry": int64(128)}),
		one("retry_largest", asynq.MaxRetry(math.MaxInt32), wire.Fields{"retry": int64(math.MaxInt32)}),
		// The client cuts to 32 bits without a check, and so reaches the
		// negative half of the field.
		one("retry_overflow", asynq.MaxRetry(math.MaxInt32+1), wire.Fields{"retry": int64(math.MinInt32)}),
		one("timeout_one_second", asynq.Timeout(time.Second), wire.Fields{"timeout": int64(1)}),
		one("timeout_truncated", asynq.Timeout(1999*time.Millisecond), wire.Fields{"timeout": int64(1)}),
		one("timeout_below_second_is_zero", asynq.Timeout(500*time.Millisecond), wire.Fields{"timeout": int64(0)}),
		one("timeout_negative", asynq.Timeout(-90*time.Second), wire.Fields{"timeout": int64(-90)}),
		one("timeout_longest", asynq.Timeout(longest), wire.Fields{"timeout": int64(9_223_372_036)}),
		one("deadline_only", asynq.Deadline(time.Unix(1_700_003_600, 999_999_999)),
			wire.Fields{"deadline": int64(1_700_003_600), "timeout": int64(0)}),
		one("deadline_before_epoch", asynq.Deadline(time.Unix(-1, 0)),
			wire.Fields{"deadline": int64(-1), "timeout": int64(0)}),
		one("deadline_at_epoch_counts_as_none", asynq.Deadline(time.Unix(0, 0)),
			wire.Fields{"deadline": int64(0), "timeout": int64(1800)}),
		one("deadline_zero_time_counts_as_none", asynq.Deadline(time.Time{}),
			wire.Fields{"deadline": int64(0), "timeout": int64(1800)}),
		one("deadline_year_9999", asynq.Deadline(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)),
			wire.Fields{"deadline": int64(253_402_300_799), "timeout": int64(0)}),
		one("deadline_largest", asynq.Deadline(time.Unix(math.MaxInt64, 0)),
			wire.Fields{"deadline": int64(math.MaxInt64), "timeout": int64(0)}),
		one("retention", asynq.Retention(24*time.Hour), wire.Fields{"retention": int64(86_400)}),
		one("retention_below_second_is_zero", asynq.Retention(999*time.Millisecond), wire.Fields{"retention": int64(0)}),
		one("retention_negative", asynq.Retention(-time.Second), wire.Fields{"retention": int64(-1)}),
		one("retention_longest", asynq.Retention(longest), wire.Fields{"retention": int64(9_223_372_036)}),
	}
}
