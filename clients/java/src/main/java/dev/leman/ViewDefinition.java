package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.TableRef;
import dev.leman.v1.ViewColumn;
import dev.leman.v1.ViewFunction;
import dev.leman.v1.ViewQuery;
import java.util.List;

/** The query of a view over one table or view. */
public final class ViewDefinition {
  private final ViewQuery told;

  private ViewDefinition(ViewQuery told) {
    this.told = told;
  }

  /** All rows and columns of a table or view of the same database. */
  public static ViewDefinition of(String source) {
    Arguments.given("source", source);
    return new ViewDefinition(
        ViewQuery.newBuilder().setSource(TableRef.newBuilder().setTable(source)).build());
  }

  /** The source is in another database. */
  public ViewDefinition from(String database) {
    Arguments.given("database", database);
    ViewQuery.Builder changed = told.toBuilder();
    changed.getSourceBuilder().setDatabase(database);
    return new ViewDefinition(changed.build());
  }

  /** Only these columns of the source, and those added by the other methods. */
  public ViewDefinition columns(String... names) {
    Arguments.given("names", names);
    ViewQuery.Builder changed = told.toBuilder();
    for (String name : names) {
      changed.addColumns(ViewColumn.newBuilder().setName(name));
    }
    return new ViewDefinition(changed.build());
  }

  /**
   * Add a column that a SQL expression over the source's columns computes. Without {@link
   * #columns}, the view then has only the columns that are added so.
   */
  public ViewDefinition sql(String name, String expression) {
    Arguments.given("name", name);
    Arguments.given("expression", expression);
    return new ViewDefinition(
        told.toBuilder()
            .addColumns(ViewColumn.newBuilder().setName(name).setExpression(expression))
            .build());
  }

  /**
   * Add a column that a registered function, {@code name@version}, computes from these columns; if
   * none are given, from those that its definition names.
   */
  public ViewDefinition function(String name, String nameAndVersion, String... inputs) {
    Arguments.given("name", name);
    Arguments.given("nameAndVersion", nameAndVersion);
    Arguments.given("inputs", inputs);
    ViewFunction function =
        ViewFunction.newBuilder()
            .setName(name)
            .setUdf(ColumnFunction.ref(nameAndVersion))
            .addAllInputColumns(List.of(inputs))
            .build();
    return new ViewDefinition(told.toBuilder().addFunctions(function).build());
  }

  /** Keep only rows for which this SQL condition is true. */
  public ViewDefinition where(String condition) {
    Arguments.given("condition", condition);
    return new ViewDefinition(told.toBuilder().setWhere(condition).build());
  }

  /** Put the rows in a random order, which is the same for equal seeds. */
  public ViewDefinition shuffle(long seed) {
    return new ViewDefinition(told.toBuilder().setShuffleSeed(seed).build());
  }

  /** Keep at most this number of rows. */
  public ViewDefinition limit(long rows) {
    return new ViewDefinition(told.toBuilder().setLimit(rows).build());
  }

  /** Skip this number of rows. */
  public ViewDefinition offset(long rows) {
    return new ViewDefinition(told.toBuilder().setOffset(rows).build());
  }

  ViewQuery told(String database) {
    if (!told.getSource().getDatabase().isEmpty()) {
      return told;
    }
    ViewQuery.Builder here = told.toBuilder();
    here.getSourceBuilder().setDatabase(database);
    return here.build();
  }
}
