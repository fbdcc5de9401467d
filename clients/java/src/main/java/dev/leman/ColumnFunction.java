package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.ErrorPolicy;
import dev.leman.v1.NewColumn;
import dev.leman.v1.PreviewFunctionRequest;
import dev.leman.v1.UdfRef;
import java.util.List;

/**
 * What computes a column: a SQL expression over the table's columns, or a registered function with
 * its inputs.
 */
public final class ColumnFunction {
  private final String sql;
  private final UdfRef function;
  private final List<String> inputs;
  private final ErrorPolicy errors;

  private ColumnFunction(String sql, UdfRef function, List<String> inputs, ErrorPolicy errors) {
    this.sql = sql;
    this.function = function;
    this.inputs = inputs;
    this.errors = errors;
  }

  /** A SQL expression, such as {@code upper(title)}; computed without Spark. */
  public static ColumnFunction sql(String expression) {
    Arguments.given("expression", expression);
    return new ColumnFunction(expression, null, List.of(), null);
  }

  /**
   * A registered function: {@code name@version}, or {@code name} for the one registered last.
   *
   * @param inputs the columns that it reads; if none are given, those that its definition names
   */
  public static ColumnFunction registered(String nameAndVersion, String... inputs) {
    Arguments.given("nameAndVersion", nameAndVersion);
    Arguments.given("inputs", inputs);
    return new ColumnFunction(null, ref(nameAndVersion), List.of(inputs), null);
  }

  /** Return the same SQL expression with an error policy for rows on which it fails. */
  public ColumnFunction errorPolicy(ErrorPolicy policy) {
    Arguments.given("policy", policy);
    return new ColumnFunction(sql, function, inputs, policy);
  }

  static UdfRef ref(String nameAndVersion) {
    int at = nameAndVersion.indexOf('@');
    String name = at < 0 ? nameAndVersion : nameAndVersion.substring(0, at);
    return UdfRef.newBuilder()
        .setName(name)
        .setVersion(at < 0 ? "" : nameAndVersion.substring(at + 1))
        .build();
  }

  void of(PreviewFunctionRequest.Builder preview) {
    NewColumn column = column("");
    preview.addAllInputColumns(column.getInputColumnsList());
    if (column.hasSqlExpression()) {
      preview.setSqlExpression(column.getSqlExpression());
    } else {
      preview.setUdf(column.getUdf());
    }
    if (column.hasErrorPolicy()) {
      preview.setErrorPolicy(column.getErrorPolicy());
    }
  }

  NewColumn column(String name) {
    NewColumn.Builder column = NewColumn.newBuilder().setName(name).addAllInputColumns(inputs);
    if (sql != null) {
      column.setSqlExpression(sql);
    } else {
      column.setUdf(function);
    }
    if (errors != null) {
      column.setErrorPolicy(errors);
    }
    return column.build();
  }
}
