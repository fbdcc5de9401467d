package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.TableRef;
import dev.leman.v1.ViewColumn;
import dev.leman.v1.ViewFunction;
import dev.leman.v1.ViewQuery;
import java.util.List;

/** What a view holds: a query over one table or view. */
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

  /** The source lies in another database. */
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
   * A column made by a SQL expression over the source's columns; without {@link #columns} it is the
   * only one.
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
   * A column made by a registered function, {@code name@version}, from these columns; none: as it
   * names them itself.
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

  /** Only rows for which this SQL condition is true. */
  public ViewDefinition where(String condition) {
    Arguments.given("condition", condition);
    return new ViewDefinition(told.toBuilder().setWhere(condition).build());
  }

  /** In a random order, the same for the same seed. */
  public ViewDefinition shuffle(long seed) {
    return new ViewDefinition(told.toBuilder().setShuffleSeed(seed).build());
  }

  /** At most so many rows. */
  public ViewDefinition limit(long rows) {
    return new ViewDefinition(told.toBuilder().setLimit(rows).build());
  }

  /** Leave out so many rows. */
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
