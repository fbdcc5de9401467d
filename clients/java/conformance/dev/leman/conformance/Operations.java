package dev.leman.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.leman.BackfillOptions;
import dev.leman.ColumnFunction;
import dev.leman.Database;
import dev.leman.FunctionDefinition;
import dev.leman.JobQuery;
import dev.leman.JobUpdate;
import dev.leman.JobWatch;
import dev.leman.MergeRules;
import dev.leman.Pages;
import dev.leman.PreviewOptions;
import dev.leman.ReadOptions;
import dev.leman.Rows;
import dev.leman.Schemas;
import dev.leman.Table;
import dev.leman.View;
import dev.leman.ViewDefinition;
import dev.leman.v1.ComputedColumn;
import dev.leman.v1.DescribeTableResponse;
import dev.leman.v1.ExplainPlanResponse;
import dev.leman.v1.Job;
import dev.leman.v1.JobEvent;
import dev.leman.v1.MaterializedViewSummary;
import dev.leman.v1.MergeRowsResponse;
import dev.leman.v1.PreviewFunctionResponse;
import dev.leman.v1.PreviewRow;
import dev.leman.v1.RowError;
import java.io.IOException;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;

/** What a step can ask for, by the objects of the client. */
final class Operations {
  private static final Map<String, ArrowType> TYPES =
      Map.of(
          "bool", new ArrowType.Bool(),
          "int32", new ArrowType.Int(32, true),
          "int64", new ArrowType.Int(64, true),
          "float32", new ArrowType.FloatingPoint(FloatingPointPrecision.SINGLE),
          "float64", new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE),
          "utf8", new ArrowType.Utf8());

  private final Database database;
  private final JsonNode given;
  private final Duration timeout;

  private Operations(Database database, JsonNode given, Duration timeout) {
    this.database = database;
    this.given = given;
    this.timeout = timeout;
  }

  /** Do a step and give its value. */
  static JsonNode perform(JsonNode step, Clients clients) throws Exception {
    JsonNode given = step.get("with") == null ? Runner.JSON.createObjectNode() : step.get("with");
    JsonNode timeout = step.get("timeout");
    if (step.get("do").asText().equals("rpc")) {
      return StubCalls.call(clients.client(step).channel(), given, timeout);
    }
    Duration time =
        timeout == null || timeout.isNull()
            ? null
            : Duration.ofNanos((long) (timeout.asDouble() * 1e9));
    return new Operations(database(clients.database(step), given), given, time)
        .perform(step.get("do").asText());
  }

  private static Database database(Database database, JsonNode given) {
    return given.hasNonNull("request_id")
        ? database.withRequestId(given.get("request_id").asText())
        : database;
  }

  private JsonNode perform(String operation) throws IOException {
    return switch (operation) {
      case "tables" -> names("tables", database.tables());
      case "create_table" ->
          done(() -> database.createTable(text("table"), ArrowText.rows(text("arrow"))));
      case "drop_table" -> done(() -> database.dropTable(text("table"), force()));
      case "rename_table" ->
          done(() -> database.renameTable(text("table"), text("new_name"), force()));
      case "describe" -> describe(table().describe());
      case "append" -> done(() -> table().append(ArrowText.rows(text("arrow"))));
      case "read" -> read();
      case "delete" -> value("rows", table().delete(text("where")));
      case "update" -> value("rows", table().update(text("where"), set()));
      case "merge" -> merged(table().merge(ArrowText.rows(text("arrow")), rules()));
      case "add_columns" -> value("version", table().addColumns(columns()));
      case "alter_columns" -> value("version", table().alterColumns(columns()));
      case "drop_columns" ->
          value("version", table().dropColumns(texts("columns").toList(), force()));
      case "rename_column" ->
          value("version", table().renameColumn(text("column"), text("new_name"), force()));
      case "functions" -> functions();
      case "register_function" -> done(this::register);
      case "upload_bundle" ->
          value("sha256", database.uploadBundle(Base64.getDecoder().decode(text("data"))));
      case "create_view" -> done(() -> database.createView(text("view"), view()));
      case "views" ->
          names("views", database.views().stream().map(MaterializedViewSummary::getName));
      case "drop_view" -> done(() -> database.dropView(text("view"), force()));
      case "plan" -> plan(table().plan(text("column"), backfill()));
      case "preview" -> preview();
      case "backfill" -> value("job", table().backfill(text("column"), backfill()).id());
      case "refresh" -> value("job", refreshed().refresh().id());
      case "jobs" -> jobs();
      default -> job(operation);
    };
  }

  private JsonNode job(String operation) {
    var job = database.job(text("job"));
    return switch (operation) {
      case "job" -> job(job.get());
      case "watch" -> watch(timeout == null ? job.watch() : job.watch(timeout));
      case "wait" -> await();
      case "cancel" -> value("state", state(job.cancel()));
      case "pause" -> value("state", state(job.pause()));
      case "resume" -> value("state", state(job.resume()));
      case "errors" -> errors();
      default -> throw new IllegalArgumentException("there is no operation " + operation);
    };
  }

  private Map<String, String> set() {
    Map<String, String> found = new LinkedHashMap<>();
    given
        .get("set")
        .properties()
        .forEach(each -> found.put(each.getKey(), each.getValue().asText()));
    return found;
  }

  private MergeRules rules() {
    MergeRules rules = MergeRules.on(texts("keys").toArray(String[]::new));
    if (given.path("update").asBoolean()) {
      rules = rules.updateMatched(given.path("update_where").asText(""));
    }
    if (given.path("insert").asBoolean()) {
      rules = rules.insertNotMatched();
    }
    if (given.path("delete").asBoolean()) {
      rules = rules.deleteNotMatchedBySource(given.path("delete_where").asText(""));
    }
    return rules;
  }

  private static JsonNode merged(MergeRowsResponse done) {
    return value("inserted", done.getRowsInserted())
        .put("updated", done.getRowsUpdated())
        .put("deleted", done.getRowsDeleted());
  }

  private static JsonNode describe(DescribeTableResponse found) {
    ObjectNode value = value("version", found.getVersion()).put("rows", found.getRowCount());
    Schemas.read(found.getSchema()).getFields().stream()
        .map(Field::getName)
        .forEach(value.putArray("columns")::add);
    found.getComputedColumnsList().stream()
        .map(ComputedColumn::getName)
        .forEach(value.putArray("computed")::add);
    return value;
  }

  private JsonNode read() throws IOException {
    ReadOptions options = ReadOptions.all();
    if (has("columns")) {
      options = options.columns(texts("columns").toArray(String[]::new));
    }
    if (has("where")) {
      options = options.where(text("where"));
    }
    if (has("limit")) {
      options = options.limit(given.get("limit").asLong());
    }
    if (has("offset")) {
      options = options.offset(given.get("offset").asLong());
    }
    if (has("version")) {
      String version = text("version");
      options =
          version.matches("\\d+") ? options.version(Long.parseLong(version)) : options.tag(version);
    }
    try (Rows rows = table().read(options, ArrowText.MEMORY)) {
      return value("arrow", ArrowText.written(rows, given.path("batches").asInt(-1)));
    }
  }

  private JsonNode preview() {
    PreviewOptions options = PreviewOptions.usual();
    if (has("n")) {
      options = options.rows(given.get("n").asInt());
    }
    if (has("where")) {
      options = options.where(text("where"));
    }
    PreviewFunctionResponse made =
        has("column")
            ? table().preview(text("column"), options)
            : table().preview(function(given), options);
    ObjectNode value = value("rows_to_compute", made.getProjection().getRowsToCompute());
    ArrayNode states = value.putArray("states");
    ArrayNode outputs = value.putArray("outputs");
    for (PreviewRow row : made.getRowsList()) {
      states.add(row.getState().name().replaceFirst("STATE_", ""));
      outputs.add(row.getOutput());
    }
    return value;
  }

  private ColumnFunction function(JsonNode told) {
    String[] inputs = texts(told.path("inputs")).toArray(String[]::new);
    return told.has("sql")
        ? ColumnFunction.sql(told.get("sql").asText())
        : ColumnFunction.registered(told.get("function").asText(), inputs);
  }

  private Map<String, ColumnFunction> columns() {
    Map<String, ColumnFunction> columns = new LinkedHashMap<>();
    given
        .get("columns")
        .fields()
        .forEachRemaining(entry -> columns.put(entry.getKey(), function(entry.getValue())));
    return columns;
  }

  private JsonNode functions() {
    return names(
        "functions", database.functions().stream().map(f -> f.getName() + "@" + f.getVersion()));
  }

  private void register() {
    database.registerFunction(
        FunctionDefinition.entrypoint(text("entrypoint"))
            .name(text("name"))
            .version(text("version"))
            .kind(FunctionDefinition.Kind.valueOf(text("kind").toUpperCase(Locale.ROOT)))
            .inputs(texts("inputs").toArray(String[]::new))
            .output(TYPES.get(text("output")))
            .build());
  }

  private ViewDefinition view() {
    ViewDefinition[] definition = {ViewDefinition.of(text("source"))};
    given
        .path("columns")
        .fields()
        .forEachRemaining(
            column ->
                definition[0] = definition[0].sql(column.getKey(), column.getValue().asText()));
    return has("where") ? definition[0].where(text("where")) : definition[0];
  }

  private static JsonNode plan(ExplainPlanResponse plan) {
    ObjectNode value = value("rows_total", plan.getRowsTotal());
    value.put("rows_reused", plan.getRowsReused()).put("rows_to_compute", plan.getRowsToCompute());
    ObjectNode reasons = value.putObject("reasons");
    plan.getReasonsList()
        .forEach(r -> reasons.put(r.getReason().name().substring("REASON_".length()), r.getRows()));
    return value;
  }

  private BackfillOptions backfill() {
    BackfillOptions options = BackfillOptions.usual();
    if (has("where")) {
      options = options.where(text("where"));
    }
    if (has("labels")) {
      options = options.labels(labels());
    }
    return has("priority") ? options.priority(given.get("priority").asInt()) : options;
  }

  private JsonNode jobs() {
    JobQuery query = JobQuery.all();
    if (has("table")) {
      query = query.tables(text("table"));
    }
    if (has("states")) {
      query =
          query.states(
              texts("states").map(s -> Job.State.valueOf("STATE_" + s)).toArray(Job.State[]::new));
    }
    if (has("labels")) {
      query = query.labels(labels());
    }
    return names("jobs", limited(database.jobs(query)).stream().map(Job::getJobId));
  }

  private static JsonNode job(Job job) {
    boolean refresh = job.hasRefresh();
    ObjectNode value =
        value("job", job.getJobId()).put("state", state(job)).put("priority", job.getPriority());
    value.put(
        "table",
        refresh ? job.getRefresh().getView().getTable() : job.getBackfill().getTable().getTable());
    value.put("column", job.getBackfill().getColumn());
    value.set("labels", Runner.JSON.valueToTree(job.getLabelsMap()));
    if (job.hasError()) {
      value.set("error", Runner.object("reason", dev.leman.Jobs.error(job).reason()));
    }
    return value;
  }

  private JsonNode watch(JobWatch watched) {
    int most = given.path("take").asInt(Integer.MAX_VALUE);
    ObjectNode value = Runner.JSON.createObjectNode();
    ArrayNode events = value.putArray("events");
    try (JobWatch watch = watched) {
      while (watch.hasNext() && events.size() < most) {
        JobUpdate update = watch.next();
        value.put("state", state(update.job()));
        update.events().stream()
            .limit(most - (long) events.size())
            .map(Operations::event)
            .forEach(events::add);
      }
    }
    return value;
  }

  private static JsonNode event(JobEvent event) {
    return value("sequence", event.getSequence())
        .put("kind", event.getKind().name().substring("KIND_".length()));
  }

  private JsonNode await() {
    ObjectNode value = Runner.JSON.createObjectNode();
    ArrayNode told = Runner.JSON.createArrayNode();
    boolean progress = given.path("progress").asBoolean();
    Job job =
        database
            .job(text("job"))
            .await(
                timeout,
                now -> {
                  if (progress) {
                    told.add(now.getRowsCommitted());
                  }
                });
    return value.put("state", state(job)).set("progress", told);
  }

  private JsonNode errors() {
    ObjectNode value = Runner.JSON.createObjectNode();
    ArrayNode errors = value.putArray("errors");
    for (RowError error : limited(database.job(text("job")).errors())) {
      errors.add(
          value("row_address", error.getRowAddress()).put("error_type", error.getErrorType()));
    }
    return value;
  }

  private <T> Pages<T> limited(Pages<T> all) {
    return has("limit") ? all.limit(given.get("limit").asLong()) : all;
  }

  private Map<String, String> labels() {
    Map<String, String> labels = new LinkedHashMap<>();
    given
        .get("labels")
        .fields()
        .forEachRemaining(label -> labels.put(label.getKey(), label.getValue().asText()));
    return labels;
  }

  private Table table() {
    Table table = database.table(text("table"));
    return has("request_id") ? table.withRequestId(text("request_id")) : table;
  }

  private View refreshed() {
    View view = database.view(text("view"));
    return has("request_id") ? view.withRequestId(text("request_id")) : view;
  }

  private boolean force() {
    return given.path("force").asBoolean();
  }

  private boolean has(String name) {
    return given.hasNonNull(name);
  }

  private String text(String name) {
    return has(name) ? given.get(name).asText() : "";
  }

  private Stream<String> texts(String name) {
    return texts(given.path(name));
  }

  private static Stream<String> texts(JsonNode list) {
    return StreamSupport.stream(list.spliterator(), false).map(JsonNode::asText);
  }

  private static String state(Job job) {
    return job.getState().name().substring("STATE_".length());
  }

  private static ObjectNode value(String name, long number) {
    return Runner.JSON.createObjectNode().put(name, number);
  }

  private static ObjectNode value(String name, String text) {
    return Runner.JSON.createObjectNode().put(name, text);
  }

  private static JsonNode names(String name, Pages<String> found) {
    return names(name, found.stream());
  }

  private static JsonNode names(String name, Stream<String> found) {
    ObjectNode value = Runner.JSON.createObjectNode();
    found.forEach(value.putArray(name)::add);
    return value;
  }

  private static JsonNode done(Runnable work) {
    work.run();
    return Runner.JSON.createObjectNode();
  }
}
