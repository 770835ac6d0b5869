package deliver

import (
	"fmt"
	"strings"

	"argosy.dev/argosy/reconciler/notify"
)

// Slack's limits: 50 blocks a message, 150 characters a header, 3,000 a text.
const (
	slackHeader = 150
	slackText   = 2900
)

type object = map[string]any

// slackPayload is the message of an incoming webhook. Texts are of the type plain_text, in which
// Slack finds neither mentions nor links nor marks; the fallback, which is mrkdwn, has them escaped
// as Slack documents it.
func slackPayload(r notify.Delivery) any {
	blocks := []any{object{"type": "header", "text": plainText(cut(headline(r), slackHeader))}}
	for _, e := range shown(r) {
		text := notify.Describe(e, r.Public)
		var lines []string
		if len(r.Events) > 1 {
			lines = append(lines, text.Title)
		}
		for _, f := range text.Fields {
			lines = append(lines, f.Name+": "+f.Value)
		}
		if text.Next != "" {
			lines = append(lines, "Next: "+text.Next)
		}
		block := object{"type": "section",
			"text": plainText(cut(strings.Join(lines, "\n"), slackText))}
		if text.Link != "" {
			block["accessory"] = object{"type": "button", "text": plainText("Open"),
				"url": text.Link}
		}
		blocks = append(blocks, block)
	}
	if more := hidden(r); more != "" {
		blocks = append(blocks, object{"type": "section", "text": plainText(more)})
	}
	return object{"text": slackEscape(headline(r)), "blocks": blocks,
		"unfurl_links": false, "unfurl_media": false}
}

func plainText(s string) object { return object{"type": "plain_text", "text": s, "emoji": false} }

var slackEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func slackEscape(s string) string { return slackEscaper.Replace(s) }

// teamsPayload is an Adaptive Card in a message, as a workflow of Teams posts it. Texts are runs of
// a RichTextBlock, in which no Markdown is read; mentions need entities, and the card has none.
func teamsPayload(r notify.Delivery) any {
	body := []any{richText(headline(r), object{"size": "Large", "weight": "Bolder"})}
	var actions []any
	for _, e := range shown(r) {
		text := notify.Describe(e, r.Public)
		if len(r.Events) > 1 {
			body = append(body, richText(text.Title, object{"weight": "Bolder"}))
		}
		for _, f := range text.Fields {
			body = append(body, richText(f.Name+": "+f.Value, object{}))
		}
		if text.Next != "" {
			body = append(body, richText("Next: "+text.Next, object{"fontType": "Monospace"}))
		}
		if text.Link != "" && len(actions) == 0 {
			actions = append(actions, object{"type": "Action.OpenUrl", "title": "Open",
				"url": text.Link})
		}
	}
	if more := hidden(r); more != "" {
		body = append(body, richText(more, object{}))
	}
	card := object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
		"type": "AdaptiveCard", "version": "1.4", "body": body}
	if actions != nil {
		card["actions"] = actions
	}
	return object{"type": "message", "attachments": []any{object{
		"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil,
		"content": card}}}
}

func richText(s string, style object) object {
	style["type"], style["text"] = "TextRun", s
	return object{"type": "RichTextBlock", "inlines": []any{style}}
}

// plain is the text of an e-mail.
func plain(r notify.Delivery) string {
	var b strings.Builder
	for i, e := range shown(r) {
		text := notify.Describe(e, r.Public)
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(text.Title + "\n\n")
		for _, f := range text.Fields {
			fmt.Fprintf(&b, "  %-14s %s\n", f.Name+":", f.Value)
		}
		if text.Next != "" {
			fmt.Fprintf(&b, "  %-14s %s\n", "Next:", text.Next)
		}
		if text.Link != "" {
			fmt.Fprintf(&b, "  %-14s %s\n", "Page:", text.Link)
		}
	}
	if more := hidden(r); more != "" {
		b.WriteString("\n" + more + "\n")
	}
	return b.String()
}
