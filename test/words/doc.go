// Package words holds the project's language: words that may not come back, sentences that open
// like a riddle, lines that are too long and tests named after a catalogue's number.
//
// glossary.txt lists the words with what to write instead. allow.txt lists the exceptions, each
// with its reason.
package words
