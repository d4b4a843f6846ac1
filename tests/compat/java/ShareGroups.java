import java.time.Duration; import java.util.*;
import org.apache.kafka.clients.admin.*; import org.apache.kafka.clients.consumer.*; import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*; import org.apache.kafka.common.config.ConfigResource; import org.apache.kafka.common.serialization.*;
public class ShareGroups {
  static KafkaShareConsumer<String,String> consumer(String b,String g,String mode,Map<String,Object> more){
    Map<String,Object> p=new HashMap<>(Map.of("bootstrap.servers",b,"group.id",g,"share.acknowledgement.mode",mode));
    p.putAll(more);
    return new KafkaShareConsumer<>(p,new StringDeserializer(),new StringDeserializer());
  }
  static String run(String what, Runnable r){ try { r.run(); return what+" ok"; } catch(Exception e){ return what+" "+e.getClass().getSimpleName(); } }
  public static void main(String[] a) throws Exception {
    String b=a[0]; String id=a.length>1?a[1]:(""+System.currentTimeMillis()); String t="jt"+id, g="jg"+id;
    Admin admin=Admin.create(Map.of("bootstrap.servers",(Object)b));
    admin.createTopics(List.of(new NewTopic(t,1,(short)-1))).all().get();
    var r=new ConfigResource(ConfigResource.Type.GROUP,g);
    admin.incrementalAlterConfigs(Map.of(r,List.of(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset","earliest"),AlterConfigOp.OpType.SET)))).all().get();
    var p=new KafkaProducer<String,String>(Map.of("bootstrap.servers",(Object)b),new StringSerializer(),new StringSerializer());
    for(int i=0;i<10;i++) p.send(new ProducerRecord<>(t,"k"+i,"v"+i)); p.flush();
    var c=consumer(b,g,"explicit",Map.of()); c.subscribe(List.of(t));
    Map<Long,List<Integer>> seen=new TreeMap<>();
    long end=System.currentTimeMillis()+40000; int accepted=0;
    while(System.currentTimeMillis()<end && accepted<10){
      var records=c.poll(Duration.ofMillis(1000));
      for(var rec: records){
        seen.computeIfAbsent(rec.offset(),k->new ArrayList<>()).add((int)rec.deliveryCount().get());
        if(rec.offset()%5==3){ if(rec.deliveryCount().get()<3) c.acknowledge(rec,AcknowledgeType.RELEASE); else {c.acknowledge(rec,AcknowledgeType.REJECT);accepted++;} }
        else { c.acknowledge(rec,AcknowledgeType.ACCEPT); accepted++; }
      }
      var res=c.commitSync(); res.forEach((k,v)->{ if(v.isPresent()) System.out.println("commit "+v.get()); });
    }
    System.out.println("counts "+seen);
    System.out.println("described "+admin.describeShareGroups(List.of(g)).all().get().get(g).groupState());
    var off=admin.listShareGroupOffsets(Map.of(g,new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(g).get();
    off.forEach((k,v)->System.out.println("offset "+k.partition()+" "+(v==null?null:v.startOffset())+" lag "+(v==null?null:v.lag())));
    // lock with two members: what one holds the other does not get
    for(int i=10;i<14;i++) p.send(new ProducerRecord<>(t,"k"+i,"v"+i)); p.flush();
    List<Long> mine=new ArrayList<>(); end=System.currentTimeMillis()+10000;
    while(mine.size()<4 && System.currentTimeMillis()<end) for(var rec: c.poll(Duration.ofMillis(500))) { mine.add(rec.offset()); }
    var d=consumer(b,g,"implicit",Map.of()); d.subscribe(List.of(t)); int other=0;
    end=System.currentTimeMillis()+4000; while(System.currentTimeMillis()<end) other+=d.poll(Duration.ofMillis(300)).count();
    System.out.println("held "+mine+" other "+other);
    // the holder closes: what it holds is for the other
    c.close(); List<String> then=new ArrayList<>(); end=System.currentTimeMillis()+8000;
    while(then.size()<4 && System.currentTimeMillis()<end) for(var rec: d.poll(Duration.ofMillis(300))) then.add(rec.offset()+":"+rec.deliveryCount().get());
    System.out.println("after close "+then);
    System.out.println(run("alter while active", ()->{ try { admin.alterShareGroupOffsets(g,Map.of(new TopicPartition(t,0),2L)).all().get(); } catch(Exception e){ throw new RuntimeException(e.getCause().getClass().getSimpleName()); }}));
    d.commitSync(); d.close();
    admin.alterShareGroupOffsets(g,Map.of(new TopicPartition(t,0),12L)).all().get();
    var e2=consumer(b,g,"implicit",Map.of("max.poll.records",1,"share.acquire.mode","record_limit")); e2.subscribe(List.of(t)); List<String> again=new ArrayList<>(); end=System.currentTimeMillis()+10000;
    while(again.size()<2 && System.currentTimeMillis()<end) for(var rec: e2.poll(Duration.ofMillis(300))) again.add(rec.offset()+":"+rec.deliveryCount().get());
    System.out.println("after alter "+again); e2.close();
    admin.deleteShareGroupOffsets(g,Set.of(t)).all().get();
    System.out.println("offsets left "+admin.listShareGroupOffsets(Map.of(g,new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(g).get().size());
    admin.deleteShareGroups(List.of(g)).all().get();
    System.out.println("groups left "+admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream().filter(x->x.groupId().equals(g)).count());
    p.close(); admin.close(); System.out.println("done");
  }
}
