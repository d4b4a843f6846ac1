// franz-go against a secured listener: one record written, and read as a member of a group, then printed.
// Usage: secured ADDRESS TOPIC MECHANISM [AUTHORITY [CERTIFICATE KEY]]; user, password and token are in the environment.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(name string) sasl.Mechanism {
	user, password := os.Getenv("CLIENT_USER"), os.Getenv("CLIENT_PASSWORD")
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: os.Getenv("CLIENT_TOKEN")}.AsMechanism()
	}
	return nil
}

func secured(words []string) *tls.Config {
	authority, err := os.ReadFile(words[0])
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if len(words) > 1 {
		certificate, err := tls.LoadX509KeyPair(words[1], words[2])
		if err != nil {
			log.Fatal(err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config
}

func main() {
	address, topic := os.Args[1], os.Args[2]
	options := []kgo.Opt{
		kgo.SeedBrokers(address),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumerGroup(topic),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if chosen := mechanism(os.Args[3]); chosen != nil {
		options = append(options, kgo.SASL(chosen))
	}
	if len(os.Args) > 4 {
		options = append(options, kgo.DialTLSConfig(secured(os.Args[4:])))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		log.Fatal(err)
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("hello")}).FirstErr(); err != nil {
		log.Fatal(err)
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			log.Fatal(err)
		}
		for _, record := range fetches.Records() {
			fmt.Println(string(record.Value))
			return
		}
	}
}
