package dev.leman;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import java.util.List;
import java.util.Map;
import org.apache.arrow.vector.types.DateUnit;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.junit.jupiter.api.Test;

/** The names of types in requests that change a column's type. */
class ColumnTypeTest {
  @Test
  void plainTypesHaveTheirNames() {
    Map.of(
            "int32", new ArrowType.Int(32, true),
            "uint8", new ArrowType.Int(8, false),
            "float32", new ArrowType.FloatingPoint(FloatingPointPrecision.SINGLE),
            "utf8", new ArrowType.Utf8(),
            "large_binary", new ArrowType.LargeBinary())
        .forEach(
            (name, type) ->
                assertEquals(name, ColumnType.told(Field.nullable("item", type)).getType()));
  }

  @Test
  void aListHasItsValues() {
    Field values = Field.notNullable("item", new ArrowType.Int(64, true));
    FieldType type = FieldType.nullable(new ArrowType.LargeList());
    var told = ColumnType.told(new Field("l", type, List.of(values)));
    assertEquals("large_list", told.getType());
    assertEquals("int64", told.getFields(0).getType().getType());
    assertEquals(false, told.getFields(0).getNullable());
  }

  @Test
  void whatNoColumnBecomesIsRefused() {
    Field date = Field.nullable("item", new ArrowType.Date(DateUnit.DAY));
    LemanException refused = assertThrows(LemanException.class, () -> ColumnType.told(date));
    assertEquals(Status.Code.INVALID_ARGUMENT, refused.code());
    assertTrue(refused.getMessage().startsWith("no column becomes"), refused.getMessage());
  }
}
