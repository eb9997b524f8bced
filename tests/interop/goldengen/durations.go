package main

import (
	"math"
	"slices"
	"time"
)

// durations is what Go makes of durations as text, both ways.
type durations struct {
	Format []formatted `json:"format"`
	Parse  []parsed    `json:"parse"`
}

type formatted struct {
	Nanos int64  `json:"nanos"`
	Text  string `json:"text"`
}

// parsed has either nanos or an error.
type parsed struct {
	Input string  `json:"input"`
	Nanos *int64  `json:"nanos,omitempty"`
	Error *string `json:"error,omitempty"`
}

func goDurations() durations {
	var out durations
	for _, nanos := range durationValues() {
		out.Format = append(out.Format, formatted{nanos, time.Duration(nanos).String()})
	}
	for _, input := range durationInputs {
		p := parsed{Input: input}
		if d, err := time.ParseDuration(input); err != nil {
			text := err.Error()
			p.Error = &text
		} else {
			nanos := int64(d)
			p.Nanos = &nanos
		}
		out.Parse = append(out.Parse, p)
	}
	return out
}

// durationValues are 100 distinct values around each change of unit.
func durationValues() []int64 {
	var values []int64
	add := func(more ...int64) {
		for _, value := range more {
			if len(values) < 100 && !slices.Contains(values, value) {
				values = append(values, value)
			}
		}
	}
	add(0, 1, -1, math.MaxInt64, math.MaxInt64-1, math.MinInt64, math.MinInt64+1)
	for _, unit := range []time.Duration{
		time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour,
	} {
		u := int64(unit)
		add(u-1, u, u+1, -u, 10*u, 3*u/2, 90*u, 999*u)
	}
	add(
		7, 10, 100, 999, -999,
		1_100, 1_010, 1_001, 123_456, -123_456, 500_000, 100_000_000, 123_456_789,
		1_000_000_010, 1_100_000_000, 1_234_567_890, -1_500_000_000,
		61_000_000_000, 3_661_001_001_001, 1_800_000_000_000, -3_661_000_000_000,
	)
	// The rest from a fixed walk over all magnitudes.
	for x := int64(3); len(values) < 100; x = x*7 + 5 {
		add(x, -x)
	}
	return values
}

var durationInputs = []string{
	"0", "+0", "-0", "0s", "1s", "-1s", "+1s", "1.5s", "1.s", ".5s", "-.5s", "1h30m", "1h30m10s",
	"1h1m1s1ms1us1ns", "1us", "1µs", "1μs", "1ns", "1.5ns", "0.5ns", "100ms", "1m0.5s", "90m", "25h", "1s1s",
	"1s1h", "0.000000001s", "0.0000000001s", "1.0000000019s", "0.3333333333333333333h", "0.100000000000000000000h",
	"9223372036854775807ns", "9223372036854775808ns", "-9223372036854775808ns", "-9223372036854775809ns",
	"9223372036.854775807s", "9223372036.854775808s", "2562047h47m16.854775807s", "2562048h", "-2562047h47m16.854775808s",
	"99999999999999999999s", "0.9223372036854775807h", "3000000h",
	"", "s", ".", "-", "+", ".s", "-.s", "1", "-1", "1.5", "3d", "1w", "1y", "1S", "1H", "1 s", " 1s", "1s ", "1h 30m",
	"1,5s", "1e3s", "--1s", "+-1s", "1..5s", "1.5.5s", "0x10s", "1_000s", "inf", "nan", "1min", "1sec", "1hr",
	"1m30", "1µ", "µs", "１s", "1s\n", "1h-30m", "1h+30m", "00001s", "0h0m0s", "-0s", "1ms1", "\"1s\"",
}
