package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields is a decoded message: proto field name to value. Absent fields are
// there with their zero value, except timestamps, which are nil.
type Fields map[string]any

// Hex is a bytes field. It is written to JSON in hexadecimal.
type Hex []byte

// MarshalJSON writes lower-case hexadecimal.
func (h Hex) MarshalJSON() ([]byte, error) {
	return json.Marshal(hex.EncodeToString(h))
}

// Decode reads a message and refuses whatever the schema does not name.
func (m Message) Decode(data []byte) (Fields, error) {
	out := make(Fields, len(m.fields))
	for _, f := range m.fields {
		out[f.name] = f.kind.zero()
	}
	for len(data) > 0 {
		number, wireType, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, fmt.Errorf("%s: bad tag: %w", m.Name, protowire.ParseError(n))
		}
		data = data[n:]
		f, ok := m.find(number)
		if !ok {
			return nil, fmt.Errorf("%s: unknown field %d", m.Name, number)
		}
		n, err := f.consume(out, wireType, data)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", m.Name, f.name, err)
		}
		data = data[n:]
	}
	return out, nil
}

func (m Message) find(number protowire.Number) (field, bool) {
	for _, f := range m.fields {
		if f.number == number {
			return f, true
		}
	}
	return field{}, false
}

// consume reads one value and returns how many bytes it took.
func (f field) consume(out Fields, wireType protowire.Type, data []byte) (int, error) {
	if f.kind == kindInt || f.kind == kindBool {
		if wireType != protowire.VarintType {
			return 0, fmt.Errorf("wire type %d for a number", wireType)
		}
		value, n := protowire.ConsumeVarint(data)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		if f.kind == kindBool {
			out[f.name] = protowire.DecodeBool(value)
		} else {
			out[f.name] = int64(value)
		}
		return n, nil
	}
	if wireType != protowire.BytesType {
		return 0, fmt.Errorf("wire type %d for bytes", wireType)
	}
	value, n := protowire.ConsumeBytes(data)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	return n, f.store(out, value)
}

func (f field) store(out Fields, value []byte) error {
	switch f.kind {
	case kindBytes:
		out[f.name] = Hex(value)
		return nil
	case kindTimestamp:
		inner, err := timestamp.Decode(value)
		if err != nil {
			return err
		}
		out[f.name] = Timestamp{inner["seconds"].(int64), inner["nanos"].(int64)}
		return nil
	case kindStringMap:
		inner, err := stringEntry.Decode(value)
		if err != nil {
			return err
		}
		out[f.name].(map[string]string)[inner["key"].(string)] = inner["value"].(string)
		return nil
	case kindIntMap:
		inner, err := intEntry.Decode(value)
		if err != nil {
			return err
		}
		out[f.name].(map[string]int64)[inner["key"].(string)] = inner["value"].(int64)
		return nil
	}
	if !utf8.Valid(value) {
		return fmt.Errorf("string %q is not UTF-8", value)
	}
	if f.kind == kindStrings {
		out[f.name] = append(out[f.name].([]string), string(value))
	} else {
		out[f.name] = string(value)
	}
	return nil
}
