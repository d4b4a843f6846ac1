// Confluent's JavaScript client: its serializers and deserializers of the three kinds; prints what came back.
import {
  AvroDeserializer,
  AvroSerializer,
  JsonDeserializer,
  JsonSerializer,
  SchemaRegistryClient,
  SerdeType,
} from '@confluentinc/schemaregistry'

const [url, prefix] = process.argv.slice(2)
const client = new SchemaRegistryClient({ baseURLs: [url] })
const schemas = {
  avro: ['AVRO', '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}', AvroSerializer, AvroDeserializer],
  json: ['JSON', '{"type":"object","properties":{"id":{"type":"integer"}}}', JsonSerializer, JsonDeserializer],
}
const told = {}
for (const [name, [schemaType, schema, Serializer, Deserializer]] of Object.entries(schemas)) {
  const topic = `${prefix}-${name}`
  const id = await client.register(`${topic}-value`, { schemaType, schema })
  const serializer = new Serializer(client, SerdeType.VALUE, { useLatestVersion: true })
  const data = await serializer.serialize(topic, { id: 7 })
  const fresh = new SchemaRegistryClient({ baseURLs: [url] })
  const decoded = await new Deserializer(fresh, SerdeType.VALUE, {}).deserialize(topic, data)
  const metadata = await fresh.getLatestSchemaMetadata(`${topic}-value`)
  told[name] = {
    decoded: decoded.id,
    latest: metadata.id === id,
    versions: await fresh.getAllVersions(`${topic}-value`),
    compatibility: await fresh.getDefaultCompatibility(),
    compatible: await fresh.testSubjectCompatibility(`${topic}-value`, { schemaType, schema }),
  }
}
told.deleted = await client.deleteSubject(`${prefix}-avro-value`)
console.log(JSON.stringify(told))
process.exit(0)
