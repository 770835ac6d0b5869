package shadow

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	renderWithin = 2 * time.Minute // one source
	maxMessage   = 100 << 20       // Argo CD's own limit
)

// Server is a connection to a repo-server.
type Server struct{ conn *grpc.ClientConn }

// Open prepares a connection through dial. Without plain, the repo-server has a certificate of its
// own making, which the application-controller does not check either. The client's certificates are
// for a repo-server with mutual TLS.
func Open(dial func(context.Context) (net.Conn, error), plain bool,
	client []tls.Certificate) (*Server, error) {
	secure := insecure.NewCredentials()
	if !plain {
		secure = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: client,
			InsecureSkipVerify: true}) // through the API server, which is checked
	}
	conn, err := grpc.NewClient("passthrough:///repo-server",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dial(ctx)
		}), grpc.WithTransportCredentials(secure), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(maxMessage),
			grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, err
	}
	return &Server{conn}, nil
}

// Close ends the connection.
func (s *Server) Close() error { return s.conn.Close() }

// Render asks for every source. An error means that the repo-server has not answered: nothing is
// known of the Application then. With resolved, it asks for these revisions instead.
func (s *Server) Render(ctx context.Context, requests []*Request,
	resolved []string) (r Rendered, revisions []string, err error) {
	for i, request := range requests {
		if i < len(resolved) && resolved[i] != "" {
			request.Revision = resolved[i]
		}
		got, err := s.generate(ctx, request)
		switch status.Code(err) {
		case codes.OK:
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unimplemented:
			return Rendered{}, nil, fmt.Errorf("the repo-server does not answer: %w", err)
		default:
			r.Error = status.Convert(err).Message()
			return r, revisions, nil
		}
		r.Manifests = append(r.Manifests, got.manifests...)
		revisions = append(revisions, got.revision)
	}
	return r, revisions, nil
}

func (s *Server) generate(ctx context.Context, r *Request) (got response, err error) {
	ctx, cancel := context.WithTimeout(ctx, renderWithin)
	defer cancel()
	err = s.conn.Invoke(ctx, generateManifest, r, &got)
	return got, err
}
