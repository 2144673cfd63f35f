// Package testkit is a container of dejamq for tests in Go, on Testcontainers.
package testkit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	port        = "9876/tcp"
	controlPort = "9877/tcp"
	patience    = 120 * time.Second
)

// Container is a name server and a broker at one address.
type Container struct {
	testcontainers.Container
	// Namesrv is for clients of the remoting protocol: NAMESRV_ADDR.
	Namesrv string
	// Endpoints is for clients of protocol v2. It is the same host and port.
	Endpoints string
	control   string
}

// Duplicate is a message that the broker handed to a group again without being asked.
type Duplicate struct {
	MessageID string `json:"message_id"`
	Cause     string `json:"cause"` // "undetermined" where the broker's journal does not prove one
	Why       string `json:"why"`
	Missing   string `json:"missing"`
}

// Run starts a container, for example of dejamq:local. It is ready, and clients are told the mapped port.
func Run(ctx context.Context, image string, more ...testcontainers.ContainerCustomizer) (*Container, error) {
	options := append([]testcontainers.ContainerCustomizer{
		testcontainers.WithExposedPorts(port, controlPort),
		testcontainers.WithCmd("dev", "--listen=0.0.0.0:9876", "--control=0.0.0.0:9877"),
		testcontainers.WithWaitStrategyAndDeadline(
			patience, wait.ForHTTP("/health").WithPort(controlPort).WithStartupTimeout(patience)),
	}, more...)
	started, err := testcontainers.Run(ctx, image, options...)
	mq := &Container{Container: started}
	if started == nil || err != nil {
		return mq, err
	}
	if mq.Namesrv, err = started.PortEndpoint(ctx, port, ""); err != nil {
		return mq, err
	}
	mq.Endpoints = mq.Namesrv
	if mq.control, err = started.PortEndpoint(ctx, controlPort, "http"); err != nil {
		return mq, err
	}
	// a published port is known only when the container runs
	_, err = mq.Ask(ctx, http.MethodPost, "/advertise", map[string]any{"address": mq.Namesrv})
	return mq, err
}

// AnswerLost lets the work of the next calls be done and their answers be lost. Operations: send, receive, ack, commit, …
func (mq *Container) AnswerLost(ctx context.Context, operation string, count int) error {
	return mq.Strike(ctx, map[string]any{"fault": "answer_lost", "operation": operation, "count": count})
}

// RequestLost lets the next calls never arrive.
func (mq *Container) RequestLost(ctx context.Context, operation string, count int) error {
	return mq.Strike(ctx, map[string]any{"fault": "request_lost", "operation": operation, "count": count})
}

// Do does a fault without more words: cut and heal, pause and resume, kill and restart.
func (mq *Container) Do(ctx context.Context, fault string) error {
	return mq.Strike(ctx, map[string]any{"fault": fault})
}

// Strike does any fault that POST /faults knows.
func (mq *Container) Strike(ctx context.Context, fault map[string]any) error {
	_, err := mq.Ask(ctx, http.MethodPost, "/faults", fault)
	return err
}

// ClearFaults ends all faults.
func (mq *Container) ClearFaults(ctx context.Context) error {
	_, err := mq.Ask(ctx, http.MethodDelete, "/faults", nil)
	return err
}

// Duplicates tells what the group got again, with the cause where the broker's journal proves it.
func (mq *Container) Duplicates(ctx context.Context, group string) ([]Duplicate, error) {
	said, err := mq.Ask(ctx, http.MethodGet, "/duplicates?group="+url.QueryEscape(group), nil)
	if err != nil {
		return nil, err
	}
	var answer struct{ Duplicates []Duplicate }
	err = json.Unmarshal(said, &answer)
	return answer.Duplicates, err
}

// Ask does any request of the control API. The error says what is wrong and what to do.
func (mq *Container) Ask(ctx context.Context, method, path string, body map[string]any) ([]byte, error) {
	var sent io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, mq.control+path, sent)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("dejamq: %s", said)
	}
	return said, err
}
