package wire

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Encode writes the fields in ascending number and maps in ascending key,
// leaving zero values out. It is one of many valid encodings.
func (m Message) Encode(fields Fields) []byte {
	var out []byte
	for _, f := range m.fields {
		out = f.append(out, fields[f.name])
	}
	return out
}

func (f field) append(out []byte, value any) []byte {
	switch value := value.(type) {
	case string:
		if value != "" {
			out = f.appendBytes(out, []byte(value))
		}
	case Hex:
		if len(value) > 0 {
			out = f.appendBytes(out, value)
		}
	case int64:
		if value != 0 {
			out = protowire.AppendTag(out, f.number, protowire.VarintType)
			out = protowire.AppendVarint(out, uint64(value))
		}
	case bool:
		if value {
			out = protowire.AppendTag(out, f.number, protowire.VarintType)
			out = protowire.AppendVarint(out, 1)
		}
	case Timestamp:
		inner := Fields{"seconds": value.Seconds, "nanos": value.Nanos}
		out = f.appendBytes(out, timestamp.Encode(inner))
	case []string:
		for _, item := range value {
			out = f.appendBytes(out, []byte(item))
		}
	case map[string]string:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			out = f.appendBytes(out, encodeEntry(key, value[key]))
		}
	case map[string]int64:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			out = f.appendBytes(out, encodeEntry(key, value[key]))
		}
	}
	return out
}

func (f field) appendBytes(out, value []byte) []byte {
	out = protowire.AppendTag(out, f.number, protowire.BytesType)
	return protowire.AppendBytes(out, value)
}

// encodeEntry keeps an empty key or value: map entries are written with both.
func encodeEntry(key string, value any) []byte {
	out := field{number: 1}.appendBytes(nil, []byte(key))
	switch value := value.(type) {
	case string:
		out = field{number: 2}.appendBytes(out, []byte(value))
	case int64:
		out = protowire.AppendTag(out, 2, protowire.VarintType)
		out = protowire.AppendVarint(out, uint64(value))
	}
	return out
}
