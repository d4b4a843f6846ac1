// Confluent's Go client of schema registries: registers, reads, is refused, deletes; prints what it was told.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	client, err := schemaregistry.NewClient(schemaregistry.NewConfig(os.Args[1]))
	check(err)
	text := `{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}`
	id, err := client.Register("confluent-go-value", schemaregistry.SchemaInfo{Schema: text}, false)
	check(err)
	found, err := client.GetBySubjectAndID("confluent-go-value", id)
	check(err)
	versions, err := client.GetAllVersions("confluent-go-value")
	check(err)
	metadata, err := client.GetLatestSchemaMetadata("confluent-go-value")
	check(err)
	breaking := schemaregistry.SchemaInfo{Schema: `{"type":"record","name":"Order","fields":[{"name":"n","type":"string"}]}`}
	_, refusal := client.Register("confluent-go-value", breaking, false)
	deleted, err := client.DeleteSubject("confluent-go-value", false)
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"text": found.Schema == text, "versions": versions, "latest": metadata.ID == id,
		"refused": refusal != nil, "deleted": deleted,
	}))
}
