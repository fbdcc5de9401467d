package functions

import "encoding/binary"

// mostDecompressed is how many bytes a batch may have once it is decompressed: as many as a message may have.
const mostDecompressed = 256 << 20

// Fields of the flatbuffers tables Message, DictionaryBatch and RecordBatch, and kinds of messages, by Arrow's
// format/Message.fbs.
const (
	fieldKind, fieldHeader            = 1, 2
	fieldData                         = 1
	fieldBuffers, fieldCompression    = 2, 3
	kindDictionary, kindRecordBatch   = 2, 3
	wordBytes, longBytes, bufferBytes = 4, 8, 16
)

// decompressed tells how many bytes the buffers of a compressed batch say that they become, by its metadata and its body;
// 0: it is not compressed. Arrow allocates as many as each says, whatever the machine has.
func decompressed(header, body []byte) int64 {
	metadata := flat(header)
	batch := metadata.compressedBatch()
	if batch == 0 {
		return 0
	}
	buffers := metadata.field(batch, fieldBuffers)
	if buffers == 0 {
		return 0
	}
	vector := metadata.table(buffers)
	var sum int64
	for n, at := metadata.word(vector), vector+wordBytes; n > 0 && at+bufferBytes <= len(metadata); n-- {
		if start, length := metadata.long(at), metadata.long(at+longBytes); length > 0 && start <= int64(len(body)) {
			sum += max(0, flat(body).long(int(max(0, start)))) // -1: this buffer is not compressed
		}
		if sum > mostDecompressed {
			return sum
		}
		at += bufferBytes
	}
	return sum
}

// flat is the bytes of a flatbuffer, which may be any; what lies beyond them is 0.
type flat []byte

func (f flat) word(at int) int {
	if at < 0 || at+wordBytes > len(f) {
		return 0
	}
	return int(int32(binary.LittleEndian.Uint32(f[at:])))
}

func (f flat) long(at int) int64 {
	if at < 0 || at+longBytes > len(f) {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(f[at:]))
}

func (f flat) half(at int) int {
	if at < 0 || at+2 > len(f) {
		return 0
	}
	return int(binary.LittleEndian.Uint16(f[at:]))
}

// table is where the table begins to which a place points.
func (f flat) table(at int) int { return at + f.word(at) }

// field is where a field of a table is; 0: it has none.
func (f flat) field(table, number int) int {
	known := table - f.word(table)
	slot := wordBytes + 2*number
	if slot >= f.half(known) {
		return 0
	}
	if offset := f.half(known + slot); offset > 0 {
		return table + offset
	}
	return 0
}

// compressedBatch is where the table of a compressed batch is in the metadata of its message; 0: it is none.
func (f flat) compressedBatch() int {
	message := f.table(0)
	kind := f.field(message, fieldKind)
	if kind <= 0 || kind >= len(f) {
		return 0
	}
	batch := f.table(f.field(message, fieldHeader))
	switch f[kind] {
	case kindDictionary:
		batch = f.table(f.field(batch, fieldData))
	case kindRecordBatch:
	default:
		return 0
	}
	if f.field(batch, fieldCompression) == 0 {
		return 0
	}
	return batch
}
