package configschema

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// readable checks what can be said of a file before it is parsed, and reports whether it may be.
func (d *decoder) readable(f File) bool {
	switch {
	case f.Size < 0:
		d.fileProblem(codeFileTooLarge,
			fmt.Sprintf("the file is too large to be read; at most %d bytes are", maxFile),
			"keep large values in the application's repository")
	case f.Size > 0:
		d.fileProblem(codeFileTooLarge, fmt.Sprintf("the file has %d bytes; at most %d are read",
			f.Size, maxFile), "keep large values in the application's repository")
	case f.Irregular != "":
		d.fileProblem(codeIrregular, "the entry is no regular file but a "+irregular(f)+
			"; it is never followed", "put the declaration itself here")
	case len(f.Bytes) > maxFile:
		d.fileProblem(codeFileTooLarge, fmt.Sprintf("the file has %d bytes; at most %d are read",
			len(f.Bytes), maxFile), "keep large values in the application's repository")
	case bytes.HasPrefix(f.Bytes, []byte("version https://git-lfs.github.com/spec/")):
		d.fileProblem(codeLFSPointer, "the file is a Git LFS pointer",
			"store it in Git itself: git lfs untrack, then add it again")
	case bytes.HasPrefix(f.Bytes, []byte("\xff\xfe")), bytes.HasPrefix(f.Bytes, []byte("\xfe\xff")):
		d.lineProblem(1, 1, codeEncoding, "the file is in UTF-16", "save it as UTF-8")
	case bytes.HasPrefix(f.Bytes, []byte("\xef\xbb\xbf")):
		d.lineProblem(1, 1, codeEncoding, "the file begins with a byte order mark",
			"save it as UTF-8 without BOM")
	default:
		return d.plainText(f.Bytes)
	}
	return false
}

// irregular is what an entry is that is no regular file.
func irregular(f File) string {
	if f.Irregular == "symlink" || f.Irregular == "submodule" {
		return f.Irregular
	}
	return "special file (" + quoted(f.Irregular) + ")"
}

// plainText checks every character of the text: what is not seen, or makes the text look like
// another one (CVE-2021-42574), has no place in a file that people review. Each kind of mistake is
// told once.
func (d *decoder) plainText(b []byte) bool {
	line, start, told := 1, 0, map[string]bool(nil)
	tell := func(i int, code, message, fix string) {
		if !told[message] {
			d.lineProblem(line, utf8.RuneCount(b[start:i])+1, code, message, fix)
			if told == nil {
				told = map[string]bool{}
			}
			told[message] = true
		}
	}
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c == '\n':
			line, start = line+1, i+1
		case c >= ' ' && c < 0x7f || c == '\t':
		case c == '\r':
			if i+1 == len(b) || b[i+1] != '\n' {
				tell(i, codeEncoding, "a line ends in CR alone", "end lines with LF")
			}
		case c == 0:
			tell(i, codeEncoding, "the file holds a NUL byte", "save it as UTF-8 text")
		case c < utf8.RuneSelf:
			tell(i, codeHiddenCharacter, fmt.Sprintf("control character U+%04X", c), "remove it")
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				tell(i, codeEncoding, "the file is not valid UTF-8", "save it as UTF-8")
			} else if hidden(r) {
				tell(i, codeHiddenCharacter,
					fmt.Sprintf("character U+%04X is not seen or changes how the text reads", r),
					"remove it")
			}
			i += size
			continue
		}
		i++
	}
	return told == nil
}

// unseen tells what a text may not hold however it was written: an escape in double quotes brings
// in what plainText refuses.
func unseen(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= utf8.RuneSelf && hidden(r)
}

// hidden tells characters that break lines for YAML alone, have no width, or turn the direction of
// the text.
func hidden(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0xa0, r == 0xad, r == 0x034f, r == 0x061c, r == 0x115f, r == 0x1160,
		r == 0x17b4, r == 0x17b5, r == 0x180e, r == 0x3164, r == 0xffa0:
		return true
	case r >= 0x2000 && r <= 0x200f, r >= 0x2028 && r <= 0x202f, r >= 0x205f && r <= 0x206f,
		r == 0x3000, r == 0xfeff, r >= 0xfff9 && r <= 0xfffc:
		return true
	case r >= 0xe000 && r <= 0xf8ff, r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000, r == 0xfffe,
		r == 0xffff:
		return true // private use, variation selectors, tags
	}
	return false
}
