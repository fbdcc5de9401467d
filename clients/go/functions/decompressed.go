package functions

import "encoding/binary"

// mostDecompressed is the largest decompressed size of a batch, in bytes; it is the largest size of a message.
const mostDecompressed = 256 << 20

// Fields of the flatbuffers tables Message, DictionaryBatch and RecordBatch, and kinds of messages, from Arrow's
// format/Message.fbs.
const (
	fieldKind, fieldHeader            = 1, 2
	fieldData                         = 1
	fieldBuffers, fieldCompression    = 2, 3
	kindDictionary, kindRecordBatch   = 2, 3
	wordBytes, longBytes, bufferBytes = 4, 8, 16
)

// decompressed returns the total size that the buffers of a compressed batch declare, from its metadata and its body,
// or 0 if the batch is not compressed. Arrow allocates the declared sizes without a limit.
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

// flat is a flatbuffer that may be damaged. Bytes beyond its end read as 0.
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

// table returns the position of the table that the given position refers to.
func (f flat) table(at int) int { return at + f.word(at) }

// field returns the position of a field of a table, or 0 if the table does not have it.
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

// compressedBatch returns the position of the compressed batch's table in a message's metadata, or 0 if there is none.
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
