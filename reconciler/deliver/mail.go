package deliver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/notify"
)

// mail sends one e-mail to all addresses of the channel, over an encrypted connection alone.
func (s *Sender) mail(ctx context.Context, r notify.Delivery) (string, error) {
	if r.Fleet == nil || r.Fleet.SMTP == nil {
		return "", &notify.Refused{
			Why: "the Fleet has no server that sends e-mail: ask the platform to " +
				"declare spec.notifications.smtp"}
	}
	server := r.Fleet.SMTP
	for _, to := range r.Channel.Email.To {
		if !r.Fleet.AllowsAddress(to) {
			return "", &notify.Refused{Why: fmt.Sprintf(
				"the Fleet allows no messages to %s: ask the platform "+
					"to add the domain to spec.notifications.emailDomains", to)}
		}
	}
	m, err := email(r)
	if err != nil {
		return "", &notify.Refused{Why: err.Error()}
	}
	c, err := s.smtp(r, server)
	if err != nil {
		return "", &notify.Refused{Why: err.Error()}
	}
	err = c.DialAndSendWithContext(ctx, m)
	if err == nil {
		return fmt.Sprintf("accepted by %s for %d addresses", server.Host,
			len(r.Channel.Email.To)), nil
	}
	return "", mailError(r, server, err)
}

func email(r notify.Delivery) (*mail.Msg, error) {
	m := mail.NewMsg()
	if err := m.From(r.Fleet.SMTP.From); err != nil {
		return nil, err
	}
	if err := m.To(r.Channel.Email.To...); err != nil {
		return nil, err
	}
	m.Subject(headline(r))
	m.SetMessageIDWithValue(r.MessageID + "@argosy")
	m.SetDateWithValue(r.At)
	m.SetGenHeader("Auto-Submitted", "auto-generated")
	m.SetBodyString(mail.TypeTextPlain, plain(r))
	return m, nil
}

func (s *Sender) smtp(r notify.Delivery, server *fleet.SMTPServer) (*mail.Client, error) {
	_, port, err := net.SplitHostPort(server.Authority())
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: server.Host, RootCAs: s.Roots, MinVersion: tls.VersionTLS12}
	dial := s.dialer(r.Fleet.AllowsPrivate(server.Authority()))
	implicit := server.TLS == fleet.SMTPImplicitTLS
	options := []mail.Option{mail.WithPort(n), mail.WithTLSConfig(config),
		mail.WithTLSPolicy(mail.TLSMandatory),
		mail.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn,
			error) {
			conn, err := dial.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			if at, ok := ctx.Deadline(); ok {
				_ = conn.SetDeadline(at)
			}
			if !implicit {
				return conn, nil
			}
			encrypted := tls.Client(conn, config)
			if err := encrypted.HandshakeContext(ctx); err != nil {
				conn.Close()
				return nil, err
			}
			return encrypted, nil
		})}
	if implicit {
		// encrypted already, which the client finds out by itself; a second layer does no harm
		options = append(options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	}
	if server.CredentialsRef != nil {
		user, password := r.SMTP.Value("username"), r.SMTP.Value("password")
		if len(user) == 0 || len(password) == 0 {
			return nil, fmt.Errorf("the platform's secret %s has no username and password",
				server.CredentialsRef.Name)
		}
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover),
			mail.WithUsername(string(user)), mail.WithPassword(string(password)))
	}
	return mail.NewClient(server.Host, options...)
}

// mailError is an error of the SMTP server without the credential.
func mailError(r notify.Delivery, server *fleet.SMTPServer, err error) error {
	var refused *notify.Refused
	if errors.As(err, &refused) {
		return refused
	}
	text := without(err.Error(), string(r.SMTP.Value("password")))
	text = fmt.Sprintf("%s: %s", server.Host, oneLine(text, 300))
	var send *mail.SendError
	if errors.As(err, &send) && !send.IsTemp() && send.Reason != mail.ErrSMTPMailFrom &&
		send.ErrorCode() >= 500 {
		return &notify.Refused{Why: text}
	}
	return errors.New(text)
}

// headline is the one line of a message.
func headline(r notify.Delivery) string {
	all := notify.Subject(r.Events)
	if r.More > 0 {
		all += fmt.Sprintf(", and %d more", r.More)
	}
	return "Argosy: " + all
}

// shown are the events that a message for people lists.
func shown(r notify.Delivery) []mirror.Notification {
	return r.Events[:min(len(r.Events), shownEvents)]
}

// hidden counts the others.
func hidden(r notify.Delivery) string {
	n := len(r.Events) - len(shown(r)) + r.More
	if n == 0 {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("and %d more events: argosy get notifications --tenant %s",
		n, r.Events[0].Tenant), " --tenant ")
}

func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
