// kafkajs' registry client: registers, encodes and decodes the three kinds; prints what came back.
import { SchemaRegistry, SchemaType } from '@kafkajs/confluent-schema-registry'

const [url, prefix] = process.argv.slice(2)
const registry = new SchemaRegistry({ host: url })
const schemas = {
  avro: [SchemaType.AVRO, '{"type":"record","namespace":"a","name":"Order","fields":[{"name":"id","type":"int"}]}'],
  json: [SchemaType.JSON, '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'],
  protobuf: [SchemaType.PROTOBUF, 'syntax = "proto3"; package shop; message Order { int32 id = 1; }'],
}
const told = {}
for (const [name, [type, schema]] of Object.entries(schemas)) {
  const subject = `${prefix}-${name}`
  const { id } = await registry.register({ type, schema }, { subject })
  const again = await registry.register({ type, schema }, { subject })
  const data = await registry.encode(id, { id: 7 })
  // A new client asks for the schema by its id.
  const fresh = new SchemaRegistry({ host: url })
  const decoded = await fresh.decode(data)
  told[name] = {
    same: id === again.id,
    decoded: decoded.id,
    latest: (await fresh.getLatestSchemaId(subject)) === id,
    found: (await fresh.getRegistryId(subject, 1)) === id,
  }
}
try {
  const schema = '{"type":"record","namespace":"a","name":"Order","fields":[{"name":"n","type":"string"}]}'
  await registry.register({ type: SchemaType.AVRO, schema }, { subject: `${prefix}-avro` })
  told.refused = false
} catch (error) {
  told.refused = error.message.includes('incompatible')
}
console.log(JSON.stringify(told))
