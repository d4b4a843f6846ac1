// franz-go's client of schema registries: registers, looks up, compares, deletes; prints what it was told.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	subject := "franz-value"
	avro := `{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}`
	first, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: avro})
	check(err)
	breaking := sr.Schema{Schema: `{"type":"record","name":"Order","fields":[{"name":"n","type":"string"}]}`}
	compatible, err := client.CheckCompatibility(ctx, subject, -1, breaking)
	check(err)
	_, refusal := client.CreateSchema(ctx, subject, breaking)
	found, err := client.SchemaByID(ctx, first.ID)
	check(err)
	looked, err := client.LookupSchema(ctx, subject, sr.Schema{Schema: avro})
	check(err)
	versions, err := client.SubjectVersions(ctx, subject)
	check(err)
	set := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, subject)
	level := client.Compatibility(ctx, subject)
	proto := sr.Schema{Schema: `syntax = "proto3"; message Order { int32 id = 1; }`, Type: sr.TypeProtobuf}
	second, err := client.CreateSchema(ctx, "franz-proto", proto)
	check(err)
	var serde sr.Serde
	serde.Register(first.ID, map[string]int{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	data, err := serde.Encode(map[string]int{"id": 7})
	check(err)
	types, err := client.SupportedTypes(ctx)
	check(err)
	soft, err := client.DeleteSubject(ctx, subject, sr.SoftDelete)
	check(err)
	hard, err := client.DeleteSubject(ctx, subject, sr.HardDelete)
	check(err)
	_, missing := client.SubjectVersions(ctx, subject)
	told := map[string]any{
		"compatible": compatible.Is, "reasons": len(compatible.Messages), "refused": refusal != nil,
		"text": found.Schema == avro, "looked": looked.ID == first.ID, "versions": versions,
		"set": set[0].Err == nil, "level": level[0].Level.String(), "proto": second.Type.String(),
		"framed": data[0] == 0, "types": len(types), "soft": soft, "hard": hard, "missing": missing != nil,
	}
	check(json.NewEncoder(os.Stdout).Encode(told))
}
