import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.PutResult;
import org.apache.arrow.flight.SyncPutListener;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;

/**
 * Reads a table and writes a copy of it with arrow-java's Flight client alone: nothing of Leman's
 * is imported.
 *
 * <pre>StockFlight HOST PORT TOKEN DATABASE TABLE COPY</pre>
 *
 * Prints one line of JSON: what it was told, how many rows it read, and how it was refused.
 */
public final class StockFlight {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final FlightClient client;
  private final CallOption credential;
  private final String database;

  private StockFlight(FlightClient client, CallOption credential, String database) {
    this.client = client;
    this.credential = credential;
    this.database = database;
  }

  /** Do all of it. */
  public static void main(String[] arguments) throws Exception {
    Location location = Location.forGrpcInsecure(arguments[0], Integer.parseInt(arguments[1]));
    Map<String, Object> told = new LinkedHashMap<>();
    try (BufferAllocator memory = new RootAllocator();
        FlightClient client = FlightClient.builder(memory, location).build()) {
      told.put("stranger", refusal(() -> client.authenticateBasicToken("anybody", "guessed")));
      CallOption credential = client.authenticateBasicToken("anybody", arguments[2]).orElseThrow();
      new StockFlight(client, credential, arguments[3]).tell(told, arguments[4], arguments[5]);
    }
    System.out.println(JSON.writeValueAsString(told));
  }

  private void tell(Map<String, Object> told, String table, String copy) throws Exception {
    List<String> flights = new ArrayList<>();
    Criteria criteria = new Criteria(database.getBytes(StandardCharsets.UTF_8));
    for (FlightInfo flight : client.listFlights(criteria, credential)) {
      flights.add(flight.getDescriptor().getPath().get(1));
    }
    told.put("flights", flights);
    FlightInfo info = client.getInfo(FlightDescriptor.path(database, table), credential);
    List<String> schema = new ArrayList<>();
    info.getSchemaOptional()
        .orElseThrow()
        .getFields()
        .forEach(field -> schema.add(field.toString()));
    told.put("schema", schema);
    told.put("promised", info.getRecords());
    try (FlightStream rows = stream(info)) {
      told.put("put", put(rows, copy));
    }
    Map<String, Object> query = Map.of("columns", List.of("id"), "where", "id % 2500 = 0");
    told.put("queried", numbers(command(table, query)));
    told.put(
        "older", numbers(command(table, Map.of("columns", List.of("id"), "version", 1))).size());
    told.put("missing", refusal(() -> client.getInfo(command("nothing", Map.of()), credential)));
    told.put(
        "wrong", refusal(() -> client.getInfo(command(table, Map.of("where", "x >")), credential)));
  }

  private FlightStream stream(FlightInfo info) {
    return client.getStream(info.getEndpoints().get(0).getTicket(), credential);
  }

  /** What is asked for by a message of leman.v1, as JSON. */
  private FlightDescriptor command(String table, Map<String, Object> more)
      throws JsonProcessingException {
    Map<String, Object> asked = new LinkedHashMap<>(more);
    asked.put("table", Map.of("database", database, "table", table));
    return FlightDescriptor.command(JSON.writeValueAsBytes(asked));
  }

  private List<Long> numbers(FlightDescriptor asked) throws Exception {
    List<Long> found = new ArrayList<>();
    try (FlightStream rows = stream(client.getInfo(asked, credential))) {
      while (rows.next()) {
        BigIntVector ids = (BigIntVector) rows.getRoot().getVector(0);
        for (int row = 0; row < ids.getValueCount(); row++) {
          found.add(ids.get(row));
        }
      }
    }
    return found;
  }

  /** Write rows to a table, which is made where it is not there, and give the answer. */
  private Object put(FlightStream rows, String table) throws Exception {
    try (SyncPutListener answers = new SyncPutListener()) {
      FlightClient.ClientStreamListener writer =
          client.startPut(
              command(table, Map.of("createTable", true)), rows.getRoot(), answers, credential);
      while (rows.next()) {
        writer.putNext();
      }
      writer.completed();
      try (PutResult answer = answers.read()) {
        byte[] text = new byte[(int) answer.getApplicationMetadata().readableBytes()];
        answer.getApplicationMetadata().getBytes(0, text);
        writer.getResult();
        return JSON.readTree(text);
      }
    }
  }

  /** A call that has to fail. */
  private interface Call {
    void make() throws Exception;
  }

  /** The status and the message with which a call is refused. */
  private static Map<String, String> refusal(Call call) throws Exception {
    try {
      call.make();
    } catch (FlightRuntimeException refused) {
      String message = refused.getMessage();
      return Map.of("status", refused.status().code().name(), "message", message);
    }
    return Map.of();
  }
}
